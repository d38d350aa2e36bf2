"""Does a head of cross-attention point to where the answer stands?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def all_gold(batch: Mapping[str, Tensor]) -> Tensor:
    """The gold of all roles of a batch together: int64 (B,T,K), the columns that answer each place, -1 for none.

    Args:
        batch: with "gold.<role>" (B,T,k) for each role, as minitf's data gives it.

    Raises:
        KeyError: it has no gold.
    """
    found = [value for name, value in batch.items() if name.startswith("gold.")]
    if not found:
        raise KeyError("the batch has no gold: no entry of it begins with 'gold.'")
    return torch.cat(found, -1)


def pointed(weights: Tensor, gold: Tensor) -> tuple[Tensor, int]:
    """How often the source token that a head weighs most is one that answers the place: sums, for several batches.

    Args:
        weights: (B,H,T,S), of the attention to the source; a place of the target reads along S.
        gold: int64 (B,T,K), columns of the source from 0 to S - 1 that answer each place, -1 where there is none
            (further). Places without any are not counted.

    Returns:
        hits, int64 (H,), from 0 to the second: the number of counted places.

    Raises:
        ValueError: shapes that do not belong together, or gold beyond the source.
    """
    rows, _, n_targets, n_source = weights.shape
    if gold.dim() != 3 or gold.shape[:2] != (rows, n_targets):
        raise ValueError(f"weights {tuple(weights.shape)} need gold ({rows}, {n_targets}, K), got {tuple(gold.shape)}")
    if gold.numel() and int(gold.max()) >= n_source:
        raise ValueError(f"gold names column {int(gold.max())}, but there are {n_source} source tokens")
    strongest = weights.argmax(-1)  # (B,H,T)
    hit = (strongest[..., None] == gold[:, None]).any(-1)
    counted = (gold >= 0).any(-1)  # (B,T)
    return (hit & counted[:, None]).sum((0, 2)), int(counted.sum())


def field_accuracy(weights: Tensor, gold: Tensor) -> Tensor:
    """Share of places at which the source token that a head weighs most lies in the field of the answer.

    Args:
        weights, gold: as for `pointed`.

    Returns:
        float (H,), from 0 to 1; nan where no place has gold.

    Raises:
        ValueError: as for `pointed`.
    """
    hits, n = pointed(weights, gold)
    return hits / n if n else torch.full_like(hits, torch.nan, dtype=torch.get_default_dtype())
