"""Alignments: which source token each target token looks at, against a reference."""

from __future__ import annotations

from collections.abc import Set

import torch
from torch import Tensor

from minitf.analysis.heads.average import Average
from minitf.analysis.heads.roles import Asked, answered
from minitf.errors import DataError

Links = Set[tuple[int, int]]


def alignment_error_rate(found: Links, sure: Links, possible: Links = frozenset()) -> float:
    """AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), P the union of sure and possible: 0 all right .. 1 all wrong.

    Args:
        found: links (source, target) of the system, A.
        sure: links that must be found, S.
        possible: links that may be found.

    Raises:
        DataError: nothing was found and nothing must be: there is no rate.

    Source: Och and Ney 2003, alignment error rate.
    """
    if not found and not sure:
        raise DataError("an alignment error rate needs at least one link, found or sure: there are none")
    right = len(found & sure) + len(found & (sure | possible))
    return 1 - right / (len(found) + len(sure))


def read_links(text: str, base: int, n_source: int, n_target: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Links of one sentence as files hold them: "1-1 2p3", source - target, "p" for a link that is only possible.

    Args:
        text: one line.
        base: the number of the first token in it, 0 or 1.
        n_source, n_target: tokens of the two sentences.

    Returns:
        sure and possible links, counted from 0.

    Raises:
        DataError: something that is no link, or a link outside of the sentences.
    """
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for word in text.split():
        mark = "p" if "p" in word else "-"
        parts = word.split(mark)
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            raise DataError(f"'{word}' is no link: write source-target, such as 0-0, or 0p0 for a possible one")
        i, j = (int(part) - base for part in parts)
        if not (0 <= i < n_source and 0 <= j < n_target):
            raise DataError(
                f"the link '{word}', counted from {base}, lies outside of {n_source} source and {n_target} target "
                "tokens: is the base right?"
            )
        (possible if mark == "p" else sure).add((i, j))
    return sure, possible


def alignment_error(weights: Tensor, wanted: Asked) -> Average:
    """AER of each head as an aligner that links every asking query to its largest weight: (H,), 0 .. 1.

    A query with one answer has a sure link; one with several, such as the characters of a field, has as many possible
    ones, of which any will do.

    Args:
        weights: (B,H,T,S) of cross-attention.
        wanted: from `roles.asked`.

    Source: Och and Ney 2003, see `alignment_error_rate`.
    """
    _, right = answered(weights[wanted.row, :, wanted.query], wanted.columns)
    is_sure = (wanted.columns >= 0).sum(-1) == 1
    n_right = right.double().sum(0) + right[is_sure].double().sum(0)
    n = torch.tensor(len(right) + int(is_sure.sum()), dtype=torch.float64, device=weights.device)
    return Average(n - n_right, n)
