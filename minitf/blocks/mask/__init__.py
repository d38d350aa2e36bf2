"""Masks: which key a query may read, decided elementwise from the two positions. True means "may be read"."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.errors import ConfigError
from minitf.positions import offset, segment

_CHUNK = 2**22  # pairs looked at together


class Mask:
    """One visibility rule; rules combine with `&` and `|`.

    A rule speaks of places inside one document. That the documents of a packed row do not read each other, and that
    nobody reads padding, is part of every mask: see `visible`. So "causal and document" is plain `causal`.

    Attributes:
        plain_causal: with plain positions the rule is "this key or an earlier one".
        plain_full: with plain positions every key may be read.
        reach: how many places back and how many ahead a query reads at most; None means no bound.
        probe: so many first places of a document show whether a token reads a later one.
    """

    plain_causal: bool = False
    plain_full: bool = False
    reach: tuple[int | None, int | None] = (None, None)
    probe: int = 64

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        """What this mask adds, from places inside the document; broadcastable int64 in, bool out."""
        raise NotImplementedError

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Whether each query may read each key.

        Every mask also asks that the key is a token and belongs to the query's document.

        Args:
            q_pos, k_pos: int64 positions, broadcastable, for example (B,1,T,1) and (B,1,1,S).

        Returns:
            bool, the broadcast shape.
        """
        real = (k_pos >= 0) & (segment(q_pos) == segment(k_pos))
        return real & self.rule(offset(q_pos), offset(k_pos))

    def reads_within(self, window: int, n_sink: int) -> bool:
        """Whether a query reads nothing but the last `window` tokens, itself included, and the first `n_sink`."""
        return self.reach == (0, 0) or (self.reach[0] is not None and self.reach[0] < window and self.reach[1] == 0)

    @property
    def sees_future(self) -> bool:
        """True if some token reads a later one, tried on the first `probe` places of a document."""
        if self.reach[1] == 0:
            return False
        n = min(64, self.probe)
        while not any(bool(seen.triu(1 + first).any()) for first, seen in self._rows(n)):
            if n >= self.probe:
                return False
            n = min(4 * n, self.probe)
        return True

    def n_visible(self, n: int) -> Tensor:
        """How many keys each query of a document of `n` tokens reads: int64 (n,)."""
        check_positive(n=n)
        return torch.cat([seen.sum(-1) for _, seen in self._rows(n)])

    def density(self, n: int) -> float:
        """Share of the n * n pairs of query and key that are visible in a document of `n` tokens."""
        return self.n_visible(n).sum().item() / n**2

    def density_of_causal(self, n: int) -> float:
        """Visible pairs divided by those of the causal mask, n * (n + 1) / 2; above 1 if there are more."""
        return self.n_visible(n).sum().item() / (n * (n + 1) / 2)

    def receptive_field(self, n: int, n_layers: int, query: int | None = None) -> int:
        """How many tokens of a document of `n` can reach one of them through `n_layers` layers of this mask.

        The residual path counts: a token always reaches itself.

        Args:
            n: tokens of the document.
            n_layers: layers between the input and the token that reads.
            query: place of that token; the last one by default.

        Raises:
            ConfigError: a size below 1, or a query outside the document.
        """
        check_positive(n=n, n_layers=n_layers)
        query = n - 1 if query is None else query
        if not 0 <= query < n:
            raise ConfigError(f"query {query} is not one of the {n} places 0 to {n - 1} of this document")
        reached = torch.zeros(n, dtype=torch.bool)
        reached[query] = True
        new = reached.clone()
        for _ in range(n_layers):  # a token's row is needed once: in the layer after the one that first reached it
            places = new.nonzero()[:, 0]
            if not len(places):
                break
            read = torch.zeros_like(reached)
            for _, seen in self._rows(n, places):
                read |= seen.any(0)
            new = read & ~reached
            reached |= read
        return int(reached.sum())

    def _rows(self, n: int, places: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """The rows of these places (all by default) over n keys, a chunk at a time, with the chunk's first row."""
        places = torch.arange(n) if places is None else places
        step = max(1, _CHUNK // n)
        for first in range(0, len(places), step):
            chunk = places[first : first + step, None]
            yield first, self.visible(chunk, torch.arange(n)[None])

    def __and__(self, other: Mask) -> Mask:
        from minitf.blocks.mask.combine import All

        return All([self, other])

    def __or__(self, other: Mask) -> Mask:
        from minitf.blocks.mask.combine import Any

        return Any([self, other])
