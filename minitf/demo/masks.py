"""demo=masks: a picture of every mask, how much of the matrix is read, and how far information travels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.config import build, compose, group_options
from minitf.demo.text import pad, paragraph, table

GAP = 4
# the rows that the sizes in configs/model/mask are meant for; numbers up to 4 count something, and stay
USUAL, COUNT = 128, 4


def masks(*, length: int, n_layers: int, config: DictConfig) -> str:
    """Each mask of the group as a matrix of queries (down) and keys (across), and two numbers.

    Args:
        length: tokens of the row; sizes of a mask, meant for a usual row, are made smaller in proportion, and named.
        n_layers: layers that are stacked for the receptive field.
        config: unused; every mask is shown.

    Raises:
        ConfigError: sizes below 1.
    """
    check_positive(**{"demo.length": length, "demo.n_layers": n_layers})
    pictures, rows = [], []
    for name in group_options("model/mask"):
        node = OmegaConf.to_container(compose(f"model/mask/{name}").model.mask, resolve=True)
        small = _small(node, length)
        visible = visibility(small, length)
        sizes = " ".join(dict.fromkeys(_sizes(small)))
        pictures.append([name, *picture(visible)])
        reach = [receptive_field(visible, n) for n in (1, n_layers)]
        rows.append((f"  {name}", sizes, f"{visible.float().mean():.3f}", *map(str, reach)))
    head = ("", "sizes", "density", "reach", f"{n_layers} layers")
    return "\n".join(
        [
            "# may be read; a row is a query, a column a key",
            "",
            *_side_by_side(pictures),
            table(head, rows, left=2),
            "",
            paragraph(
                f"Density: share of the {length} x {length} pairs that may be read. Reach: tokens from which something "
                f"can have arrived at the last token, after one layer and after {n_layers}. Every mask also hides "
                "padding and other documents."
            ),
        ]
    )


def visibility(node: dict[str, Any], length: int) -> Tensor:
    """bool (T,T) of a mask's config: True where the query (row) may read the key."""
    place = torch.arange(length)
    return build(node).visible(place[:, None], place[None, :]).expand(length, length)


def picture(visible: Tensor) -> list[str]:
    """A line per query, # where it may read."""
    return [" ".join("#" if seen else "." for seen in row) for row in visible.tolist()]


def receptive_field(visible: Tensor, n_layers: int) -> int:
    """Tokens from which something can have arrived at the last token after so many layers, residual path included."""
    itself = torch.eye(visible.size(0))
    one, reached = visible.float() + itself, itself
    for _ in range(n_layers):
        reached = ((reached @ one) > 0).float()
    return int(reached[-1].sum())


def _small(node: Any, length: int) -> Any:
    """The config of a mask with whole numbers in proportion to the row."""
    if isinstance(node, dict):
        return {key: _small(value, length) for key, value in node.items()}
    if isinstance(node, list):
        return [_small(value, length) for value in node]
    is_size = isinstance(node, int) and node > COUNT
    return max(1, node * length // USUAL) if is_size else node


def _sizes(node: dict[str, Any]) -> Iterator[str]:
    """What stands in the config of a mask, and of those it is made of: "window=4"."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _sizes(value)
        elif not key.startswith("_") and key != "seed":
            yield f"{key}={value}"


def _side_by_side(pictures: list[list[str]], columns: int = 110) -> list[str]:
    wide = max(len(line) for one in pictures for line in one) + GAP
    a_row = max(1, columns // wide)
    lines = []
    for start in range(0, len(pictures), a_row):
        group = pictures[start : start + a_row]
        lines += ["".join(pad(line, wide) for line in parts).rstrip() for parts in zip(*group, strict=True)] + [""]
    return lines
