"""Decoder-only models (GPT, Llama): predict the next token from those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from minitf.blocks.mask import Mask
from minitf.blocks.position import Position
from minitf.blocks.stack import Stack
from minitf.cache import KVCache
from minitf.models.embedding import Embedding
from minitf.models.head.lm import LMHead


class Decoder(Stack):
    """A stack of layers between an embedding and a head.

    Args:
        vocab_size: number of tokens V.
        tie_embeddings: use the embedding table as the head's matrix.
        init: fills the parameters of the finished model.
        max_len, d_model, n_layers, dropout: as for `Stack`.
        attention, position, mask, ffn, norm, layer, recipes, pattern: as for `Stack`.

    Raises:
        ConfigError: parts that do not fit together.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_len: int,
        d_model: int,
        n_layers: int,
        tie_embeddings: bool,
        dropout: float,
        attention: Callable[..., nn.Module],
        position: Callable[..., Position],
        mask: Mask,
        ffn: Callable[..., nn.Module],
        norm: Callable[[int], nn.Module],
        layer: Callable[..., nn.Module],
        recipes: Mapping[str, Mapping[str, Any]],
        pattern: Sequence[str],
        init: Callable[[nn.Module], None],
    ) -> None:
        embedding = Embedding(vocab_size, d_model, n_layers)
        super().__init__(
            max_len=max_len,
            d_model=d_model,
            n_layers=n_layers,
            dropout=dropout,
            attention=attention,
            position=position,
            mask=mask,
            ffn=ffn,
            norm=norm,
            layer=layer,
            recipes=recipes,
            pattern=pattern,
        )
        self.embedding = embedding
        tied_to = self.embedding if tie_embeddings else None
        self.head = LMHead(d_model=d_model, vocab_size=vocab_size, tied_to=tied_to)
        init(self)

    def hidden(self, ids: Tensor, pos: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Token ids -> last hidden states.

        Args:
            ids: int64 (B,T).
            pos: (B or 1, T) positions; None means that the row simply goes on, without padding.
            caches: one per layer, from `new_caches`.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: more places than a learned table has, positions or caches that do not fit.
        """
        return self.run(self.embedding(ids), pos, caches)

    def forward(self, ids: Tensor, pos: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Token ids (B,T) -> logits (B,T,V); arguments as for `hidden`."""
        return self.head(self.hidden(ids, pos, caches))

    def step(self, ids: Tensor, pos: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Token ids (B,T) -> logits (B,V) of the last token: the one entry that generation uses."""
        return self.head(self.hidden(ids, pos, caches)[:, -1])
