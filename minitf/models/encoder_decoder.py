"""Encoder-decoder models (the first Transformer, T5): write one sequence while reading another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask
from minitf.blocks.mask.full import Full
from minitf.blocks.position import Position
from minitf.blocks.stack import Stack
from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.models.embedding import Embedding, power_of
from minitf.models.head import read_out


class EncoderDecoder(nn.Module):
    """An encoder stack that reads the source, and a decoder stack whose every layer reads what it gave.

    Args:
        vocab_size: number of target tokens V.
        src_vocab_size: number of source tokens; null where the data has no source.
        max_len: longest row of the data, source or target; the end of learned position tables.
        n_encoder_layers, n_decoder_layers: layers of the two stacks.
        share_embeddings: one table for source and target; needs one vocabulary.
        tie_embeddings: use the target's table as the head's matrix.
        embedding_power: vectors of both tables are multiplied by d_model to this power on their way in.
        logit_power: the last hidden states are multiplied by d_model to this power, on their way to the head.
        cross_attention: factory of the attention to the source; null: as `attention`.
        mask: which target token reads which; every source token reads every other.
        encoder_recipes, encoder_pattern, decoder_recipes, decoder_pattern: as recipes and pattern of `Stack`.
        head: factory of the head, see `minitf.models.head`.
        init: fills the parameters of the finished model.
        d_model, dropout, attention, position, ffn, norm, layer: as for `Stack`, the same for both.

    Attributes:
        sees_future: whether a target token can read later ones.
        position_limit: number of places of the target that the position scheme can tell apart, None for no end.

    Raises:
        ConfigError: parts that do not fit together.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        src_vocab_size: int | None,
        max_len: int,
        d_model: int,
        n_encoder_layers: int,
        n_decoder_layers: int,
        share_embeddings: bool,
        tie_embeddings: bool,
        embedding_power: float,
        logit_power: float,
        dropout: float,
        attention: Callable[..., nn.Module],
        cross_attention: Callable[..., nn.Module] | None,
        position: Callable[..., Position],
        mask: Mask,
        ffn: Callable[..., nn.Module],
        norm: Callable[[int], nn.Module],
        layer: Callable[..., nn.Module],
        encoder_recipes: Mapping[str, Mapping[str, Any]],
        encoder_pattern: Sequence[str],
        decoder_recipes: Mapping[str, Mapping[str, Any]],
        decoder_pattern: Sequence[str],
        head: Callable[..., nn.Module],
        init: Callable[[nn.Module], None],
    ) -> None:
        super().__init__()
        check_positive(n_encoder_layers=n_encoder_layers, n_decoder_layers=n_decoder_layers)
        if not (cross_attention is None or callable(cross_attention)):
            raise ConfigError(f"cross_attention must be a part such as attention, or null, got {cross_attention!r}")
        _check_vocabularies(vocab_size, src_vocab_size, share_embeddings)
        n_layers = n_encoder_layers + n_decoder_layers
        common = {"max_len": max_len, "d_model": d_model, "dropout": dropout, "attention": attention}
        common |= {"position": position, "ffn": ffn, "norm": norm, "layer": layer}
        self.embedding = Embedding(vocab_size, d_model, n_layers, embedding_power)
        self.source_embedding = self.embedding
        if not share_embeddings:
            self.source_embedding = Embedding(src_vocab_size, d_model, n_layers, embedding_power)
        self.encoder = Stack(
            **common, n_layers=n_encoder_layers, mask=Full(), recipes=encoder_recipes, pattern=encoder_pattern
        )
        self.decoder = Stack(
            **common,
            n_layers=n_decoder_layers,
            mask=mask,
            recipes=decoder_recipes,
            pattern=decoder_pattern,
            cross_attention=attention if cross_attention is None else cross_attention,
        )
        self.logit_factor = power_of(d_model, logit_power=logit_power)
        tied_to = self.embedding if tie_embeddings else None
        self.head = head(d_model=d_model, vocab_size=vocab_size, n_classes=None, tied_to=tied_to)
        init(self)

    @property
    def sees_future(self) -> bool:
        return self.decoder.sees_future

    @property
    def position_limit(self) -> int | None:
        return self.decoder.position_limit

    def encode(self, src: Tensor, src_pos: Tensor | None = None) -> Tensor:
        """Source ids -> memory, for any number of calls of `hidden` or `step`.

        Args:
            src: int64 (B,S).
            src_pos: (B or 1, S) positions; None means a row without padding. A row holds one source, not several.

        Returns:
            (B,S,D).

        Raises:
            ConfigError: more places than a learned table has, positions that do not fit.
        """
        return self.encoder.run(self.source_embedding(src), src_pos)

    def hidden(
        self,
        ids: Tensor,
        pos: Tensor | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Target ids and memory -> last hidden states.

        Args:
            ids: int64 (B,T).
            pos: (B or 1, T) positions; None means that the row simply goes on, without padding.
            memory: (B,S,D) from `encode`.
            memory_pos: (B or 1, S) positions of the source; None means a source without padding.
            caches: from `new_caches`.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: no memory or that of other rows; positions or caches that do not fit.
        """
        if memory is None:
            raise ConfigError(
                "this model reads a source, and was given none: encode one first, or choose data and a task with "
                "source and target"
            )
        if memory.size(0) != ids.size(0):
            raise ConfigError(f"{ids.size(0)} rows of target tokens, {memory.size(0)} of memory: they must be as many")
        own, cross = (None, None) if caches is None else self._split(caches)
        x = self.decoder.run(self.embedding(ids), pos, own, memory, memory_pos, cross)
        return x if self.logit_factor == 1.0 else x * self.logit_factor

    def forward(self, src: Tensor, src_pos: Tensor | None, ids: Tensor, pos: Tensor | None = None) -> Tensor:
        """Source ids (B,S) and target ids (B,T) -> logits (B,T,V); arguments as for `encode` and `hidden`."""
        memory = self.encode(src, src_pos)
        return read_out(self.head, self.hidden(ids, pos, memory, src_pos), memory, src_pos)

    def step(
        self,
        ids: Tensor,
        pos: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
    ) -> Tensor:
        """Target ids (B,T) -> logits (B,V) of the last token; arguments as for `hidden`."""
        hidden = self.hidden(ids, pos, memory, memory_pos, caches)[:, -1:]
        return read_out(self.head, hidden, memory, memory_pos)[:, 0]

    def new_caches(self, make: Callable[[], KVCache]) -> list[KVCache]:
        """Fresh caches: one per decoder layer for the target, then one per decoder layer for the source.

        Args:
            make: as for `Stack.new_caches`.

        Raises:
            ConfigError: `make` is something else, or caches of this kind would change what the model computes.
        """
        own = self.decoder.new_caches(make)
        return [*own, *(cache.for_source() for cache in own)]

    def _split(self, caches: Sequence[KVCache]) -> tuple[Sequence[KVCache], Sequence[KVCache]]:
        n = self.decoder.n_layers
        if len(caches) != 2 * n or len({id(cache) for cache in caches}) != 2 * n:
            raise ConfigError(
                f"this model has {n} decoder layers and needs two caches for each, got {len(caches)}, "
                f"{len({id(cache) for cache in caches})} of them different: use new_caches"
            )
        return caches[:n], caches[n:]


def _check_vocabularies(vocab_size: int, src_vocab_size: int | None, share: bool) -> None:
    if src_vocab_size is None:
        raise ConfigError(
            "an encoder-decoder reads a source, and the data has none (data.src_vocab_size is null): choose data with "
            "source and target, or a decoder such as model=gpt_tiny"
        )
    check_positive(src_vocab_size=src_vocab_size)
    if share and src_vocab_size != vocab_size:
        raise ConfigError(
            f"share_embeddings needs one vocabulary, but the source has {src_vocab_size} tokens and the target "
            f"{vocab_size}: model.share_embeddings=false, or one tokenizer for both"
        )
