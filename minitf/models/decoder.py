"""Decoder-only models (GPT, Llama): predict the next token from those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_memory, check_positive, check_probability
from minitf.blocks.mask import Mask
from minitf.blocks.position import Position
from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.models.heads import LMHead
from minitf.positions import offset


class Decoder(nn.Module):
    """A stack of layers between an embedding and a head.

    Args:
        vocab_size: number of tokens V.
        max_len: longest row of the data; the end of learned position tables, no limit otherwise.
        d_model: width D of the residual stream.
        n_layers: number of layers L.
        tie_embeddings: use the embedding table as the head's matrix.
        dropout: probability of dropping an element of the embedding and of each sublayer's output.
        attention, position, ffn, norm, layer: factories of the parts, called once per layer (position: once).
        mask: which token reads which.
        init: fills the parameters of the finished model.

    Attributes:
        sees_future: whether the mask lets a token read later ones.

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
        init: Callable[[nn.Module], None],
    ) -> None:
        super().__init__()
        check_positive(vocab_size=vocab_size, d_model=d_model, n_layers=n_layers)
        check_positive(**{"max_len (data.seq_len)": max_len})
        check_probability("dropout", dropout)
        self.n_layers = n_layers
        self.sees_future = mask.sees_future
        n_params = d_model * (vocab_size + 4 * d_model * n_layers)  # about; never too many
        check_memory(n_params, f"a model of d_model={d_model}, n_layers={n_layers}")
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            layer(
                d_model=d_model,
                attention=attention(d_model=d_model, mask=mask),
                ffn=ffn(d_model=d_model),
                norm=norm,
                dropout=dropout,
            )
            for _ in range(n_layers)
        )
        first = self.layers[0].attention
        self.position = position(
            d_model=d_model,
            d_head=first.d_rotary,
            n_heads=first.n_heads,
            max_len=max_len,
            causal=not mask.sees_future,
        )
        if missing := self.position.uses - first.accepts:
            raise ConfigError(
                f"position={type(self.position).__name__} works by {sorted(missing)}, but attention="
                f"{type(first).__name__} takes only {sorted(first.accepts)}: choose another of the two"
            )
        self.final_norm = norm(d_model) if self.layers[0].needs_final_norm else nn.Identity()
        self.head = LMHead(d_model, vocab_size, tied_to=self.embedding if tie_embeddings else None)
        init(self)

    @property
    def position_limit(self) -> int | None:
        """Number of places that the position scheme can tell apart, or None if there is no end."""
        return self.position.limit

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
        if caches is not None:
            self._check_caches(caches)
        plain = pos is None
        if plain:
            pos = self._next_positions(ids, caches)
        else:
            self._check_positions(ids, pos)
        x = self.dropout(self.position.embed(self.embedding(ids), pos))
        for i, layer in enumerate(self.layers):
            cache = None if caches is None else caches[i]
            x = layer(x, pos=pos, plain=plain, position=self.position, cache=cache)
        return self.final_norm(x)

    def forward(self, ids: Tensor, pos: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Token ids (B,T) -> logits (B,T,V); arguments as for `hidden`."""
        return self.head(self.hidden(ids, pos, caches))

    def step(self, ids: Tensor, pos: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Token ids (B,T) -> logits (B,V) of the last token: the one entry that generation uses."""
        return self.head(self.hidden(ids, pos, caches)[:, -1])

    def new_caches(self, make: Callable[[], KVCache]) -> list[KVCache]:
        """One fresh cache per layer."""
        return [make() for _ in self.layers]

    def _next_positions(self, ids: Tensor, caches: Sequence[KVCache] | None) -> Tensor:
        start = 0
        if caches is not None:
            if not caches[0].plain:
                raise ConfigError("these caches hold padded or packed rows: give the positions of the new tokens")
            start = caches[0].n_seen
        end = start + ids.size(1)
        self._check_places(end)
        return torch.arange(start, end, device=ids.device)[None]

    def _check_caches(self, caches: Sequence[KVCache]) -> None:
        if self.sees_future:
            raise ConfigError(
                "this mask lets a token read later ones, which a cache cannot hold yet: run the model without caches"
            )
        if len(caches) != self.n_layers or len({id(c) for c in caches}) != self.n_layers:
            raise ConfigError(
                f"this model has {self.n_layers} layers and needs a cache for each, got {len(caches)}, "
                f"{len({id(c) for c in caches})} of them different: use new_caches"
            )

    def _check_positions(self, ids: Tensor, pos: Tensor) -> None:
        rows, length = ids.shape
        if pos.dtype != torch.int64 or pos.shape not in ((rows, length), (1, length)):
            raise ConfigError(
                f"positions of ids {(rows, length)} must be int64 of that shape or (1, {length}), "
                f"got {pos.dtype} {tuple(pos.shape)}: see minitf.positions.from_real"
            )
        if self.position_limit is not None:
            self._check_places(int(offset(pos).max()) + 1)

    def _check_places(self, n: int) -> None:
        if self.position_limit is not None and n > self.position_limit:
            raise ConfigError(
                f"{n} tokens do not fit the learned position table of {self.position_limit} places: "
                "shorten the text, or train with model/position=rope, sinusoidal or none"
            )
