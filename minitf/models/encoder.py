"""Encoder-only models (BERT): each token is read together with those before and after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from minitf.blocks.mask import Mask
from minitf.blocks.position import Position
from minitf.blocks.stack import Stack
from minitf.errors import ConfigError
from minitf.models.embedding import Embedding


class Encoder(Stack):
    """A stack of layers between an embedding and a head that is chosen by the task.

    Args:
        vocab_size: number of tokens V.
        n_classes: number of classes C, for heads that choose among them; null where the data has none.
        tie_embeddings: use the embedding table as the head's matrix, where the head is over the vocabulary.
        embedding_norm: factory of a norm on the embedding, after positions are added; null: there is none.
        head: factory of the head, see `minitf.models.head`.
        init: fills the parameters of the finished model.
        max_len, d_model, n_layers, dropout: as for `Stack`.
        attention, position, mask, ffn, norm, layer, recipes, pattern: as for `Stack`.

    Raises:
        ConfigError: parts that do not fit together.

    Source: Devlin et al. 2019 (BERT), section 3.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        n_classes: int | None,
        max_len: int,
        d_model: int,
        n_layers: int,
        tie_embeddings: bool,
        embedding_norm: Callable[[int], nn.Module] | None,
        dropout: float,
        attention: Callable[..., nn.Module],
        position: Callable[..., Position],
        mask: Mask,
        ffn: Callable[..., nn.Module],
        norm: Callable[[int], nn.Module],
        layer: Callable[..., nn.Module],
        recipes: Mapping[str, Mapping[str, Any]],
        pattern: Sequence[str],
        head: Callable[..., nn.Module],
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
            embedding_norm=embedding_norm,
        )
        self.embedding = embedding
        tied_to = self.embedding if tie_embeddings else None
        self.head = head(d_model=d_model, vocab_size=vocab_size, n_classes=n_classes, tied_to=tied_to)
        if getattr(self.head, "reads_memory", False):
            raise ConfigError(
                f"{type(self.head).__name__} points at places of a source, which an encoder alone has not: "
                "choose model=pointer_tiny, or another model/head"
            )
        init(self)

    def hidden(self, ids: Tensor, pos: Tensor | None = None) -> Tensor:
        """Token ids -> last hidden states.

        Args:
            ids: int64 (B,T).
            pos: (B or 1, T) positions; None means that the row simply goes on, without padding.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: more places than a learned table has, positions that do not fit.
        """
        return self.run(self.embedding(ids), pos)

    def forward(self, ids: Tensor, pos: Tensor | None = None) -> Tensor:
        """Token ids (B,T) -> what the head makes of them: (B,T,V), (B,T,C) or (B,C); arguments as for `hidden`."""
        return self.head(self.hidden(ids, pos), pos)
