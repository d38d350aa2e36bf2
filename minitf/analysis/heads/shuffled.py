"""The null model of gold: the same questions with other answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minitf.analysis.heads.average import Average
from minitf.analysis.heads.roles import Asked, RoleScore, answered


@dataclass(frozen=True)
class Shuffled:
    """Gold whose distances were dealt out anew among the queries that ask.

    A query keeps its place, and the distances of all answers stay what they were together; which query has which is
    random. A head that looks at a fixed distance, or at near tokens, does as well as before; one that looks for
    the right token does not. If all answers are equally far, nothing changes: then the gold cannot show that a head
    looks at tokens.

    Args:
        wanted: the queries of the whole batch.
        columns: int64 (n,N,K), answers in each of n shuffles.
    """

    wanted: Asked
    columns: Tensor

    def score(self, weights: Tensor, visible: Tensor, rows: Tensor, start: int = 0) -> RoleScore:
        """Of each shuffle, (n,H): queries whose new answers are all hidden, or outside the row, do not count.

        Args:
            weights, visible: (b,H,T,S), (b,T,S) of rows `start` to `start` + b - 1 of the batch.
            rows: bool (b,T), which queries of them count.
            start: first row.
        """
        chosen = self.wanted.chosen(rows, start)
        row, query = self.wanted.row[chosen] - start, self.wanted.query[chosen]
        of_queries, may = weights[row, :, query], visible[row, query]  # (N,H,S), (N,S)
        found = []
        for columns in self.columns[:, chosen]:
            outside = (columns < 0) | (columns >= may.size(-1))
            columns = columns.masked_fill(outside, -1)
            columns = columns.masked_fill(~may.gather(-1, columns.clamp_min(0)), -1)
            asks = (columns >= 0).any(-1)
            mass, right = answered(of_queries[asks], columns[asks])
            found.append((mass.sum(0), right.sum(0).double(), asks.sum().double()))
        mass, right, n = map(torch.stack, zip(*found, strict=True))
        return RoleScore(Average(mass, n[:, None]), Average(right, n[:, None]))


def shuffled(wanted: Asked, base: Tensor, n: int, generator: torch.Generator) -> Shuffled:
    """Deal the distances of a batch out anew, n times.

    Args:
        wanted: the queries of the batch, from `roles.asked`.
        base: int64 (B,T), see `rows.base_columns`.
        n: number of shuffles, at least 1.
        generator: of randomness.
    """
    distances, there = wanted.distances(base), wanted.columns >= 0
    own = base[wanted.row, wanted.query][:, None]
    columns = []
    for _ in range(n):
        order = torch.randperm(len(distances), generator=generator).to(distances.device)
        columns.append((own - distances[order]).masked_fill(~there[order], -1))
    return Shuffled(wanted, torch.stack(columns))


def shuffled_ids(ids: Tensor, pos: Tensor, generator: torch.Generator) -> Tensor:
    """The tokens of each row in random order, padding (pos -1) where it was: the null model of token matching.

    Args:
        ids, pos: int64 (B,T).
        generator: of randomness.
    """
    real = pos >= 0
    key = torch.rand(ids.shape, generator=generator).to(ids.device)
    # both orders list the padding first, so that real tokens take the places of real tokens
    old = torch.where(real, torch.arange(1, ids.size(1) + 1, device=ids.device), 0).argsort(dim=-1, stable=True)
    new = torch.where(real, key + 1, 0.0).argsort(dim=-1, stable=True)
    return torch.empty_like(ids).scatter(-1, old, ids.gather(-1, new))
