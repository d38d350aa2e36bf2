"""Rows without the columns in which all of them are padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from minitf.data.arrays import ValRows


class TrimmedRows(ValRows):
    """The validation rows, each batch as wide as its longest row."""

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (trimmed(batch) for batch in super().__iter__())


def trimmed(rows: dict[str, Any]) -> dict[str, Any]:
    """The same rows (arrays or tensors) without the columns in which all of them are padded."""
    width = int((rows["pos"] >= 0).sum(1).max())
    wide = {"src": int((rows["src_pos"] >= 0).sum(1).max())} if "src_pos" in rows else {}
    wide["src_pos"] = wide.get("src", width)
    return {name: v if name in ("label", "row") else v[:, : wide.get(name, width)] for name, v in rows.items()}
