"""Attention after the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.models.recurrent import Recurrent
from minitf.models.recurrent.alignment import Alignment
from minitf.models.recurrent.reading import InOrder, OneWay, at_end, make_gru, read


class Luong(Recurrent):
    """A GRU encoder-decoder with global attention: the state after the step reads the source, tanh(W_c [c; h]) goes on.

    The decoder starts from the encoder's last state. What was read is not fed into the next step (the paper's input
    feeding), so that all steps are read at once.

    Args:
        vocab_size, src_vocab_size, d_model, embedding_power, tie_embeddings, dropout, head: as for `Recurrent`.
        attention: factories of the `Alignment`'s score and normalize.
        init: fills the parameters of the finished model, but those of the GRUs.

    Raises:
        ConfigError: sizes that cannot be; data without a source.

    Source: Luong et al. 2015, sections 3 and 3.1 (there with stacked LSTMs).
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
        attention: Mapping[str, Callable[..., nn.Module]],
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
        self.attention = Alignment(d_model=d_model, **attention)
        self.w_c = nn.Linear(2 * d_model, d_model, bias=False)
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
        start = at_end(memory, memory_pos, last=True) if state is None else state
        states, last = read(self.gru, x, InOrder(x, pos), start)
        context = self.attention(states, memory, memory_pos)
        return torch.tanh(self.w_c(torch.cat([context, states], -1))), last
