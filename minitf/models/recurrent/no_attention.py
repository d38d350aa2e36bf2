"""The fixed vector between encoder and decoder."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.models.recurrent import Recurrent
from minitf.models.recurrent.reading import InOrder, OneWay, at_end, make_gru, read


class NoAttention(Recurrent):
    """A GRU encoder-decoder whose decoder starts from the encoder's last state, and sees nothing else of the source.

    Args:
        vocab_size, src_vocab_size, d_model, embedding_power, tie_embeddings, dropout, head: as for `Recurrent`.
        init: fills the parameters of the finished model, but those of the GRUs.

    Raises:
        ConfigError: sizes that cannot be; data without a source.

    Source: Sutskever et al. 2014, section 2 (there with LSTMs, the source reversed); Cho et al. 2014.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        src_vocab_size: int | None,
        d_model: int,
        embedding_power: float,
        tie_embeddings: bool,
        dropout: float,
        head: Callable[..., nn.Module],
        init: Callable[[nn.Module], None],
    ) -> None:
        super().__init__(
            vocab_size=vocab_size,
            src_vocab_size=src_vocab_size,
            d_model=d_model,
            embedding_power=embedding_power,
            tie_embeddings=tie_embeddings,
            dropout=dropout,
            head=head,
            encoder=OneWay,
        )
        self.gru = make_gru(d_model, d_model)
        init(self)

    def decode(
        self,
        x: Tensor,
        pos: Tensor | None,
        memory: Tensor,
        memory_pos: Tensor | None,
        state: Tensor | None = None,
        keys: KVCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        return read(self.gru, x, InOrder(x, pos), at_end(memory, memory_pos, last=True) if state is None else state)
