"""What the sums over a whole split say of it."""

import math
from collections.abc import Mapping

from minitf.errors import DataError


def scores(total: Mapping[str, float], n_bytes: int | None = None) -> dict[str, float]:
    """What the sums over a whole split say of it: sums over sums, whatever the size of the batches.

    Args:
        total: sums by name, see `minitf.training.objective.Objective`.
        n_bytes: UTF-8 bytes of the split; None: no bits per byte.

    Returns:
        "loss" (nats per scored place); where they were counted "accuracy", of scored places, and "exact", the share of
        rows whose scored places are all right; "bits_per_byte".

    Raises:
        DataError: nothing is scored.
    """
    if total["n_scored"] == 0:
        raise DataError("the validation split holds no scored token; use more data or a larger val_fraction")
    found = {"loss": total["nll"] / total["n_scored"]}
    if "n_correct" in total:
        found["accuracy"] = total["n_correct"] / total["n_scored"]
    if "n_exact" in total:
        found["exact"] = total["n_exact"] / total["n_rows"]
    if n_bytes:
        found["bits_per_byte"] = total["nll"] / math.log(2) / n_bytes
    return found
