"""The rows of the data in which a head is most active."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from minitf.analysis.capture import MAX_BYTES, capture
from minitf.analysis.forward import Batch, n_rows, rows_of
from minitf.analysis.heads.rows import counted, first_of_document
from minitf.analysis.sites import Site

N_ROWS = 10


@dataclass(frozen=True)
class ActiveRow:
    """A row and how active a head is in it.

    Args:
        row: its number, counted over all batches.
        mean: of the activity over the queries that count, 0 .. 1.
        activity: float32 (T,), see `activity`.
    """

    row: int
    mean: float
    activity: Tensor


def activity(weights: Tensor, first: Tensor, rests_on_first: bool = True) -> Tensor:
    """The largest weight that each query gives to a token other than the first: (B,H,T), 0 .. 1.

    Idle heads rest on the first token, which says nothing of what they do. Source: Guo et al. 2024, active and dormant
    heads.

    Args:
        weights: (B,H,T,S).
        first: bool (B,T,S), which key is the first token.
        rests_on_first: False of cross-attention, whose first key is like the others.
    """
    return (weights.masked_fill(first[:, None], 0.0) if rests_on_first else weights).amax(-1)


def most_active(
    model: nn.Module,
    batches: Iterable[Batch],
    heads: Mapping[Site, Sequence[int]] | None = None,
    n: int = N_ROWS,
    max_bytes: int = MAX_BYTES,
) -> dict[tuple[Site, int], list[ActiveRow]]:
    """For each head the rows with the largest mean activity, the most active first.

    Args:
        model, heads, max_bytes: see `minitf.analysis.capture.capture`.
        batches: rows.
        n: how many rows of each head.
    """
    found: dict[tuple[Site, int], list] = {}
    order = itertools.count()  # of two rows alike the earlier one stays
    before = 0
    for batch in batches:
        for piece in capture(model, batch, heads, max_bytes=max_bytes):
            crosses = piece.site.kind == "cross"
            of_queries = activity(
                piece.weights, first_of_document(piece.q_pos, piece.k_pos, crosses), rests_on_first=not crosses
            )
            rows = counted(piece.q_pos, piece.visible)
            means = of_queries.masked_fill(~rows[:, None], 0.0).sum(-1) / rows.sum(-1).clamp_min(1)[:, None]  # (b,h)
            for i, h in itertools.product(range(len(means)), range(len(piece.heads))):
                heap = found.setdefault((piece.site, piece.heads[h]), [])
                item = (float(means[i, h]), -next(order), before + piece.start + i, of_queries[i, h].clone())
                heapq.heappush(heap, item)
                if len(heap) > n:
                    heapq.heappop(heap)
        before += n_rows(batch)
    return {
        place: [ActiveRow(row, mean, values) for mean, _, row, values in sorted(heap, reverse=True, key=_rank)]
        for place, heap in found.items()
    }


def _rank(item: tuple) -> tuple[float, int]:
    return item[:2]


def rows_at(batches: Iterable[Batch], numbers: Iterable[int]) -> dict[int, dict[str, Tensor]]:
    """Rows by their number, counted over all batches: each a batch of one row."""
    wanted, found, before = set(numbers), {}, 0
    for batch in batches:
        n = n_rows(batch)
        for number in wanted & set(range(before, before + n)):
            found[number] = rows_of(batch, number - before, number - before + 1)
        before += n
    return found
