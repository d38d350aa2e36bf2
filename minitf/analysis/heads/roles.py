"""Do heads read what the gold says must be read?

Gold of a role is int64 (B,T,K): up to K columns that answer the query of a row, -1 where there is none (further). Gold
of whole rows, (B,1,K), is asked by every query of the row. In all functions `weights` are float (B,H,T,S) and `rows`
bool (B,T) says which queries count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minitf.analysis.heads.average import Average

PREFIX = "gold."


@dataclass(frozen=True)
class RoleScore:
    """How well each head serves a role.

    Args:
        mass: mean over asking queries of sum_(j in gold_i) A_ij, (H,) 0 .. 1: the role score R[h, r].
        accuracy: share of asking queries whose largest weight is on gold, (H,) 0 .. 1: head accuracy, UAS for syntax.

    Source: Clark et al. 2019, section 4; Voita et al. 2019, section 5.2.
    """

    mass: Average
    accuracy: Average

    def __add__(self, other: RoleScore) -> RoleScore:
        return RoleScore(self.mass + other.mass, self.accuracy + other.accuracy)


@dataclass(frozen=True)
class Asked:
    """The queries that ask for a role, N of them.

    Args:
        row, query: int64 (N,), where.
        columns: int64 (N,K), what answers, -1 where there is nothing further.
    """

    row: Tensor
    query: Tensor
    columns: Tensor

    def within(self, rows: Tensor, start: int = 0) -> Asked:
        """Those of some rows of the batch, counted from there.

        Args:
            rows: bool (b,T), which queries of the rows `start` to `start` + b - 1 count.
            start: the first row.
        """
        chosen = self.chosen(rows, start)
        return Asked(self.row[chosen] - start, self.query[chosen], self.columns[chosen])

    def chosen(self, rows: Tensor, start: int = 0) -> Tensor:
        """bool (N,): which of them `within` keeps."""
        inside = (self.row >= start) & (self.row < start + len(rows))
        return inside.masked_scatter(inside, rows[self.row[inside] - start, self.query[inside]])

    def distances(self, base: Tensor) -> Tensor:
        """int64 (N,K): how far back each answer is from the column of offset 0; 0 where there is none."""
        return (base[self.row, self.query][:, None] - self.columns).masked_fill(self.columns < 0, 0)


def gold_of(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Role -> gold, of the entries "gold.<role>" of a batch."""
    return {name.removeprefix(PREFIX): value for name, value in batch.items() if name.startswith(PREFIX)}


def asked(gold: Tensor, rows: Tensor) -> Asked:
    """The queries that count and have an answer."""
    gold = gold.expand(-1, rows.size(1), -1)
    row, query = (rows & (gold >= 0).any(-1)).nonzero(as_tuple=True)
    return Asked(row, query, gold[row, query])


def score(weights: Tensor, wanted: Asked) -> RoleScore:
    """The role score and the head accuracy of each head.

    An answer that the mask hides from its query counts as missed. A query with several answers is right with any.

    Args:
        weights: (B,H,T,S).
        wanted: of the same rows, from `asked`.
    """
    n = weights.new_tensor(len(wanted.row), dtype=torch.float64)
    total, right = answered(weights[wanted.row, :, wanted.query], wanted.columns)
    return RoleScore(Average(total.sum(0), n), Average(right.sum(0).double(), n))


def answered(of_queries: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mass on the answers, float64 (N,H), and whether the largest weight is on one, bool (N,H).

    Args:
        of_queries: weights of the asking queries (N,H,S).
        columns: int64 (N,K), -1: none.
    """
    there = columns >= 0
    index = columns.clamp_min(0)[:, None].expand(-1, of_queries.size(1), -1)
    mass = (of_queries.gather(-1, index).double() * there[:, None]).sum(-1)
    top, at = of_queries.max(-1)  # (N,H)
    hit = (at[:, :, None] == columns[:, None]).any(-1)
    return mass, hit & (top > 0)


def selectivity(mass: Tensor) -> Tensor:
    """max_r R[h,r] - second max_r R[h,r]: 0 a head that serves roles alike .. 1 a head of one role alone.

    Args:
        mass: (R,H), at least two roles.

    Returns:
        (H,).
    """
    largest = mass.topk(2, dim=0).values
    return largest[0] - largest[1]


@dataclass(frozen=True)
class OffsetCounts:
    """How many queries have an answer at which distance; two of them add up to that of both pieces.

    Args:
        counts: distance -> number of queries.
        n: asking queries.
    """

    counts: Mapping[int, int]
    n: int

    def __add__(self, other: OffsetCounts) -> OffsetCounts:
        both = {k: self.counts.get(k, 0) + other.counts.get(k, 0) for k in {*self.counts, *other.counts}}
        return OffsetCounts(both, self.n + other.n)

    def best(self) -> tuple[int, float]:
        """The one distance that answers most queries, and the share of queries that it answers, 0 .. 1.

        It is what a head can reach without looking at tokens, so a head must do better. Source: Clark et al. 2019,
        table 1; Voita et al. 2019, section 5.2.1.
        """
        if not self.counts:
            return 0, 0.0
        k = max(sorted(self.counts, key=abs), key=self.counts.__getitem__)
        return k, self.counts[k] / self.n


def gold_offsets(wanted: Asked, base: Tensor) -> OffsetCounts:
    """Distances of the gold itself.

    Args:
        wanted: from `asked`.
        base: int64 (B,T), see `rows.base_columns`.
    """
    there = wanted.columns >= 0
    found, n = wanted.distances(base)[there].unique(return_counts=True)
    return OffsetCounts(dict(zip(found.tolist(), n.tolist(), strict=True)), len(wanted.row))


def field_mass(weights: Tensor, query_field: Tensor, source_field: Tensor, n_fields: int) -> Average:
    """Mass that queries of field a put into field b: (H, n_fields, n_fields), each row 0 .. 1 in sum.

    Args:
        weights: (B,H,T,S), such as cross-attention of dates.
        query_field: int64 (B,T), which field a query asks for, -1: none.
        source_field: int64 (B,S), which field a source token belongs to, -1: none.
        n_fields: fields are 0 to n_fields - 1.
    """
    fields = torch.arange(n_fields, device=weights.device)
    asks = (query_field[:, :, None] == fields).double()
    has = (source_field[:, :, None] == fields).double()
    total = torch.einsum("bta,bhts,bsc->hac", asks, weights.double(), has)
    return Average(total, asks.sum((0, 1))[:, None])


def fields(gold: Mapping[str, Tensor], n_queries: int, n_sources: int) -> tuple[Tensor, Tensor]:
    """Fields from the gold of roles: role number r is field r.

    Args:
        gold: role -> (B,T,K).
        n_queries, n_sources: T and S.

    Returns:
        query_field (B,T) and source_field (B,S) of `field_mass`; the last role wins where roles share a place.
    """
    n_batch, device = next((len(g), g.device) for g in gold.values())
    query = torch.full((n_batch, n_queries), -1, device=device)
    source = torch.full((n_batch, n_sources), -1, device=device)
    for number, one in enumerate(gold.values()):
        there = one >= 0
        query[there.any(-1)] = number
        row = torch.arange(n_batch, device=device)[:, None, None].expand_as(one)
        source[row[there], one[there]] = number
    return query, source
