"""Gold for rows of text: which column of a row must be read at which place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from minitf.data.tokenizer import BaseTokenizer
from minitf.positions import offset

# (text, its ids without bos, tokenizer) -> by role (asking token, answering token), numbered in the text, bos -1
TokenGold = Callable[[str, Sequence[int], BaseTokenizer], dict[str, np.ndarray] | None]


class Rows(Protocol):
    """Batches of which it is known where each token stood in the text."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Tensor]: ...

    def places(self, index: int) -> Tensor:
        """Which token of the text stands at each place of a batch, -1 where there is none."""


class GoldTable:
    """For every token of a text and every role the tokens that must be read there.

    Args:
        tokens: bos and the ids of each document, in order (n,).
        texts: the documents that are not empty.
        tokenizer: made the ids.
        roles: names of all roles.
        token_gold: finds the gold of one document.

    Attributes:
        n_unknown: documents that have none, because they could not be read.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        texts: Sequence[str],
        tokenizer: BaseTokenizer,
        roles: Sequence[str],
        token_gold: TokenGold,
    ) -> None:
        begins = np.flatnonzero(tokens == tokenizer.bos_id)
        self.n_unknown = 0
        found: dict[str, list[np.ndarray]] = {role: [np.zeros((0, 2), dtype=np.int64)] for role in roles}
        for text, begin, end in zip(texts, begins, np.append(begins[1:], len(tokens)), strict=True):
            gold = token_gold(text, tokens[begin + 1 : end].tolist(), tokenizer)
            self.n_unknown += gold is None
            for role, pairs in (gold or {}).items():
                found[role].append(pairs + begin + 1)
        self.tables = {role: _table(np.concatenate(pairs), len(tokens)) for role, pairs in found.items()}

    def of(self, places: Tensor, pos: Tensor | None) -> dict[str, Tensor]:
        """{"gold.<role>": int64 (B,T,K)}: columns of the same row and document, the nearest first, then -1.

        Args:
            places: (B,T), which token of the text stands where, -1 where there is none.
            pos: positions of the row, None where it is one stretch of the text.
        """
        columns = torch.arange(places.size(1)).expand_as(places)
        before = columns if pos is None else offset(pos)  # so many tokens of the text stand before it in its row
        found = {}
        for role, table in self.tables.items():
            source = table[places.clamp_min(0)]
            distance = places[..., None] - source
            is_here = (source >= 0) & (places >= 0)[..., None] & (distance <= before[..., None])
            found[f"gold.{role}"] = torch.where(is_here, columns[..., None] - distance, -1)
        return found


class WithGold:
    """Batches with the gold of their rows.

    Args:
        batches: of ids, targets and maybe pos.
        table: of their text.
    """

    def __init__(self, batches: Rows, table: GoldTable) -> None:
        self.batches, self.table = batches, table

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        batch = self.batches[index]
        return {**batch, **self.table.of(self.batches.places(index), batch.get("pos"))}

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[index] for index in range(len(self)))

    @property
    def told(self) -> str:
        """How much has gold, in one line."""
        shares = ", ".join(f"{role} {share:.2%}" for role, share in self.shares.items())
        return f"gold, share of the tokens: {shares}; documents that could not be read: {self.table.n_unknown}"

    @cached_property
    def shares(self) -> dict[str, float]:
        """By role, the share of the tokens of all these rows that have gold; padding is no token."""
        n_tokens = 0
        n_gold = dict.fromkeys(self.table.tables, 0)
        for index in range(len(self)):
            batch = self[index]
            n_tokens += int((self.batches.places(index) >= 0).sum())
            for role in n_gold:
                n_gold[role] += int((batch[f"gold.{role}"][..., 0] >= 0).sum())
        return {role: round(n / n_tokens, 4) for role, n in n_gold.items()}


def _table(pairs: np.ndarray, n: int) -> Tensor:
    """int64 (n,K): the sources of each query, the nearest first, then -1; K is what the query with most of them has."""
    pairs = pairs[np.lexsort((-pairs[:, 1], pairs[:, 0]))]
    counts = np.bincount(pairs[:, 0], minlength=n)
    table = np.full((n, max(1, int(counts.max()))), -1, dtype=np.int64)
    first = np.cumsum(counts) - counts
    table[pairs[:, 0], np.arange(len(pairs)) - first[pairs[:, 0]]] = pairs[:, 1]
    return torch.from_numpy(table)
