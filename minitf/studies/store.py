"""Where results are kept: one file for each cell and seed, with all that could have changed them."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from minitf.errors import DataError
from minitf.files import write_json
from minitf.hints import show_path
from minitf.studies.code import code_hash, targets
from minitf.studies.result import Result, problem
from minitf.studies.study import Study

PARTS = ("seed", "data", "model", "task", "optim", "schedule", "trainer")  # of a config, that training reads
ONLY_TOLD = ("val_every", "log_every")  # of the trainer: change nothing


class Kept(NamedTuple):
    """What the file of a result holds.

    Args:
        result: what came out.
        key: all that could have changed it.
        final: whether it need not be tried again.
    """

    result: Result
    key: dict[str, Any]
    final: bool


class Store:
    """The folder of results: NAME/CELL/sSEED.json.

    Args:
        folder: made when the first result is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, study: str, cell: str, seed: int) -> Path:
        """Where a result is kept."""
        return self.folder / safe_name(study) / safe_name(cell) / f"s{seed}.json"

    def read(self, study: str, cell: str, seed: int) -> Kept | None:
        """A result as it was kept; None where there is none, or its content is wrong.

        Args:
            study, cell, seed: which.
        """
        try:
            kept = json.loads(self.path(study, cell, seed).read_text(encoding="utf-8"))
            named = kept["result"]
            courses = {name: [tuple(pair) for pair in of] for name, of in named["courses"].items()}
            result = Result(**{**named, "courses": courses})
            found = Kept(result, kept["key"], kept.get("final", True))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        known = isinstance(found.key, dict) and isinstance(found.final, bool)
        asked = (result.study, result.cell, result.seed) == (study, cell, seed)
        return found if asked and known and not problem(result) else None

    def write(self, result: Result, key: Mapping[str, Any], final: bool = True) -> None:
        """Keep a result.

        Args:
            result: what came out.
            key: all that could have changed it.
            final: False: an error that need not come again, so the next call tries again.

        Raises:
            DataError: it cannot be written, for example because the disk is full.
        """
        value = {"result": asdict(result), "final": final, "key": key}
        path = self.path(result.study, result.cell, result.seed)
        try:
            write_json(path, value)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise DataError(
                f"a result cannot be written to {show_path(path)}: {error.strerror or error}: "
                f"{'free some space' if full else 'make that possible'}, or give another folder=...; "
                "what was written before stays"
            ) from error


def safe_name(name: str) -> str:
    """A folder's name for a cell: as it is where every system can have it, else a short form with a hash.

    Args:
        name: any text.
    """
    plain = re.sub(r"[^\w=+-]+", "_", name, flags=re.ASCII).strip("_")[:60]
    return name if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def key_of(study: Study, cell: str, seed: int, cfg: DictConfig | None, reference: DictConfig | None) -> dict[str, Any]:
    """All that can change the result of a cell with a seed.

    Args:
        study: of the cell.
        cell: its name.
        seed: of the run.
        cfg: the composed config of the cell; None where the study computes instead of training.
        reference: that of the first cell.
    """
    key: dict[str, Any] = {"torch": _torch(), "measures": study.measures}
    named = targets([study.run, study.measures])
    if cfg is None:
        key |= {"run": study.run, "arguments": study.overrides(cell), "seed": seed}
        key["code"] = code_hash(named, builds=True)
        return json.loads(json.dumps(key))
    key["config"] = _plain(cfg, seed)
    key["code"] = code_hash(named | targets(key["config"]))
    if study.budget in ("flops", "seconds") and reference is not None:
        key["budget"] = {"like": study.budget, "of": _plain(reference, seed)}
    return json.loads(json.dumps(key))  # as it will be read


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why a result no longer counts, in a line; "" where it does.

    Args:
        old, new: keys.
    """
    before, now = dict(_flat(old)), dict(_flat(new))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    told = [_told(name, before.get(name), now.get(name)) for name in changed if name != "code"]
    told += ["the code has changed"] if "code" in changed else []
    return "; ".join([*told[:2], *([f"and {len(told) - 2} more"] if len(told) > 2 else [])])


def _told(name: str, before: Any, now: Any) -> str:
    return f"{name.removeprefix('config.')} was {before}, is {now}"


def _flat(node: Any, place: str = "") -> list[tuple[str, Any]]:
    if not isinstance(node, Mapping):
        return [(place.removesuffix("."), json.dumps(node))]
    return [pair for name, child in node.items() for pair in _flat(child, f"{place}{name}.")]


def _plain(cfg: DictConfig, seed: int) -> dict[str, Any]:
    OmegaConf.update(cfg, "seed", seed)
    whole = OmegaConf.to_container(cfg, resolve=True)
    parts = {name: whole[name] for name in PARTS if name in whole}
    parts["trainer"] = {name: value for name, value in parts["trainer"].items() if name not in ONLY_TOLD}
    return parts


@functools.cache
def _torch() -> str:
    import torch

    return torch.__version__
