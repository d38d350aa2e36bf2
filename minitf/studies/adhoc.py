"""A study of cells that were typed, not written down."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from minitf.config import config_groups
from minitf.studies.form_values import BETWEEN, override_key
from minitf.studies.study import Study


def make_study(base: Sequence[str], combinations: Sequence[Sequence[str]], metric: str, n_seeds: int = 3) -> Study:
    """A study without a claim: its table shows the cells, nothing is expected.

    Args:
        base: overrides that all cells share.
        combinations: overrides of each cell.
        metric: the one that decides.
        n_seeds: seeds.
    """
    cells = {cell_name(overrides): list(overrides) for overrides in combinations}
    if len(cells) < len(combinations):  # values of two keys that are called alike
        cells = {", ".join(overrides): list(overrides) for overrides in combinations}
    keys = [override.partition("=")[0] for override in combinations[0]]
    text = " ".join([*base, "over", *(o for overrides in combinations for o in overrides)])
    return Study(
        name=f"over-{'-'.join(key.split('/')[-1].split('.')[-1] for key in keys)}-{_hash(text)}",
        question=f"What does {' and '.join(keys)} change?",
        claim="",
        source="",
        metric=metric,
        cells=cells,
        base=list(base),
        seeds=n_seeds,
        factors=factor_names(cells),
    )


def cell_name(overrides: Sequence[str]) -> str:
    """What a cell is called: its options, and the last part of the key where the value alone says too little."""
    groups = config_groups()
    names = []
    for override in overrides:
        key, _, value = override.partition("=")
        names.append(value if key in groups else f"{key.rpartition('.')[2]}={value}")
    return BETWEEN.join(names)


def factor_names(cells: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """What the levels in the names of cells are levels of, by the keys that were typed.

    Args:
        cells: name -> overrides, one for each level.

    Returns:
        nothing where no level is one of two factors: then each says enough by itself.
    """
    found = [set(of) for of in zip(*(cell.split(BETWEEN) for cell in cells), strict=False)]
    if sum(map(len, found)) == len(set().union(*found)):
        return ()
    keys = [override_key(override) for override in next(iter(cells.values()))]
    short = [key.split("/")[-1].split(".")[-1] for key in keys]
    return tuple(short if len(set(short)) == len(keys) else keys)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
