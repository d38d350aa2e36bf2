"""Work through the cells of studies: what is finished is read, the rest is trained, side by side if there are cores."""

from __future__ import annotations

import importlib
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from omegaconf import DictConfig

from minitf.config import Known, check, compose_with_choices
from minitf.errors import ConfigError, DataError
from minitf.hints import show_path
from minitf.studies.budget import check_steps
from minitf.studies.cell import run_cell
from minitf.studies.progress import Progress
from minitf.studies.result import Result
from minitf.studies.store import Store, difference, key_of
from minitf.studies.study import Study
from minitf.studies.workers import Workers
from minitf.training.guard import Diverged


@dataclass(frozen=True)
class Piece:
    """One cell with one seed that is to be done.

    Args:
        study, cell, seed: which.
        folder: of the results.
        key: all that can change its result.
        smoke: a trial.
        composed, granted: see `run_cell`.
        chosen: the options of its config.
        refused: why it cannot be done; "" where nothing is known against it.
    """

    study: Study
    cell: str
    seed: int
    folder: str
    key: Mapping[str, Any]
    smoke: bool = False
    composed: tuple[DictConfig, DictConfig | None] | None = None
    chosen: Mapping[str, str | None] | None = None
    granted: float | None = None
    refused: str = ""

    @property
    def name(self) -> tuple[str, str, int]:
        """Study, cell and seed."""
        return self.study.name, self.cell, self.seed


def run(
    studies: Sequence[Study],
    store: Store,
    smoke: bool = False,
    jobs: int | None = None,
    say: Callable[[str], object] = print,
) -> dict[str, list[Result]]:
    """Results of all cells of studies, with those that are kept from earlier calls.

    A cell is done again where the code, its config or torch has changed, and where it failed for a reason that need
    not come again. A cell that fails does not end the others: its result says why.

    Args:
        studies: in order; their names differ.
        store: keeps each result as soon as it is there.
        smoke: a trial, whose numbers mean nothing; give it a store of its own.
        jobs: processes; None: one for each core, at most one for each cell. One works here, without another process.
        say: is called with lines about the progress.

    Returns:
        Study -> its results, by cell and then by seed.

    Raises:
        ConfigError: the only study cannot be run at all. Of several, each result of such a study says so.
        DataError: a result cannot be written; those before it are kept.
    """
    results: dict[tuple[str, str, int], Result] = {}
    pieces: list[Piece] = []
    order: dict[str, list[tuple[str, str, int]]] = {}
    if len(studies) > 1:
        say(f"composing the cells of {len(studies)} studies")
    for study in studies:
        order[study.name] = [(study.name, cell, seed) for cell in study.cells for seed in range(study.seeds)]
        try:
            pieces += _plan(study, store, smoke, results, say)
        except ConfigError as error:
            if len(studies) == 1:
                raise
            results |= {name: Result(*name, error=str(error)) for name in order[study.name]}
    if pieces:
        say(f"{_planned(pieces)}; results in {show_path(store.folder)}")
        _work_through(pieces, results, jobs or n_cores(), say)
    return {study: [results[name] for name in names] for study, names in order.items()}


def _planned(pieces: Sequence[Piece]) -> str:
    steps = sorted({piece.composed[0].trainer.max_steps for piece in pieces if piece.composed})
    long = f" of {' to '.join(f'{n:,}' for n in dict.fromkeys((steps[0], steps[-1])))} steps" if steps else ""
    seeds = max(Counter(piece.name[:2] for piece in pieces).values())
    cells = len({piece.name[:2] for piece in pieces})
    return f"{len(pieces)} runs{long}: {cells} cells, up to {seeds} seeds each"


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plan(
    study: Study,
    store: Store,
    smoke: bool,
    results: dict[tuple[str, str, int], Result],
    say: Callable[[str], object],
) -> list[Piece]:
    """What is to be done; what is kept goes into `results`, and so does a cell that cannot be composed."""
    configs, chosen, failed = {}, {}, {}
    _check_targets(study)
    if study.run is None:
        for cell in study.cells:
            try:
                configs[cell], chosen[cell] = compose_with_choices("train", study.overrides(cell, smoke))
            except Exception as error:  # Hydra's and OmegaConf's own, too
                failed[cell] = _told(error)
        check_steps(study, configs)
    if study.cells and len(failed) == len(study.cells):
        raise ConfigError(f"no cell of {study.name} can be composed: {next(iter(failed.values()))}")
    for cell, reason in failed.items():
        say(f"{study.name}: {cell} cannot be composed and is left out: {reason}")
    pieces = []
    why: dict[str, list[str]] = {}
    for cell in study.cells:
        for seed in range(study.seeds):
            if cell in failed:
                results[study.name, cell, seed] = Result(study.name, cell, seed, error=failed[cell])
                continue
            key = key_of(study, cell, seed, configs.get(cell), configs.get(study.reference))
            kept = store.read(study.name, cell, seed)
            changed = difference(kept.key, key) if kept else ""
            if kept and not changed and kept.final:
                results[study.name, cell, seed] = kept.result
                continue
            if kept:
                why.setdefault(changed or f"it failed before ({kept.result.error:.60})", []).append(f"{cell} s{seed}")
            composed = (configs[cell], configs.get(study.reference)) if configs else None
            pieces.append(Piece(study, cell, seed, str(store.folder), key, smoke, composed, chosen.get(cell)))
    for reason, again in why.items():
        say(f"{study.name}: again {', '.join(again[:3])}{' ...' if len(again) > 3 else ''}: {reason}")
    return pieces


def _check_targets(study: Study) -> None:
    """Raise ConfigError for a measure, or what is run, that is not there."""
    for what, node in [("run", study.run), *((f"measures.{name}", of) for name, of in study.measures.items())]:
        if node is None:
            continue
        module, _, function = str(node.get("_target_", "")).rpartition(".")
        try:
            found = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"study {study.name}: {what} names {module}.{function}, which is not there: {error}"
            ) from error
        if not callable(found):
            raise ConfigError(f"study {study.name}: {what} names {module}.{function}, which is no function")


def _work_through(
    pieces: Sequence[Piece],
    results: dict[tuple[str, str, int], Result],
    n_jobs: int,
    say: Callable[[str], object],
) -> None:
    n_jobs = min(n_jobs, len(pieces))
    waiting = list(pieces)
    progress = Progress(Counter(piece.study.name for piece in pieces), n_jobs, say)
    refused: dict[tuple[str, str], str] = {}
    known: Known = {}
    told: set[str] = set()

    def take() -> Piece | None:
        """The next one whose budget is known."""
        for i, piece in enumerate(waiting):
            first = (piece.study.name, piece.study.reference, piece.seed)
            waits = piece.study.budget == "seconds" and piece.composed and piece.name != first
            if not waits or first in results:
                cell = piece.name[:2]
                if cell not in refused:
                    refused[cell] = _refusal(piece, known)
                granted = results[first].trained or None if waits else None
                return replace(waiting.pop(i), granted=granted, refused=refused[cell])
        return None

    def keep(piece: Piece, result: Result, seconds: float) -> None:
        results[piece.name] = result
        study, cell, seed = piece.name
        progress.done(study, f"{study} {cell} s{seed}", seconds, result.error)
        metric = piece.study.metric
        if not result.error and metric not in result.scores and study not in told:
            told.add(study)
            say(f"note: {study} {cell} has no {metric}, which decides; there are {', '.join(sorted(result.scores))}")

    if n_jobs == 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the last digits differ with their number
        try:
            while (piece := take()) is not None:
                keep(piece, *work(piece))
        finally:
            torch.set_num_threads(threads)
        return
    with Workers(n_jobs, work) as workers:
        for piece, done, code in workers.work_through(take):
            if done is None:
                error = f"its process has ended with exit code {code}; was there too little memory?"
                done = Result(*piece.name, error=error), 0.0
                Store(piece.folder).write(done[0], piece.key, final=False)
            keep(piece, *done)


def _refusal(piece: Piece, known: Known) -> str:
    """Why a cell cannot be trained, as the check of a command line says; once for all seeds, because it is slow."""
    if piece.composed is None:
        return ""
    try:
        check(piece.composed[0], "train", piece.study.overrides(piece.cell, piece.smoke), piece.chosen, known)
    except Exception as error:  # Hydra's and OmegaConf's own, too
        return _told(error)
    return ""


def work(piece: Piece) -> tuple[Result, float]:
    """Do one piece, and keep its result in its file.

    Args:
        piece: what to do.

    Returns:
        The result, and seconds that it took.

    Raises:
        DataError: the file cannot be written.
    """
    begun = time.monotonic()
    final = True
    try:
        if piece.refused:
            raise ConfigError(piece.refused)
        more = {"smoke": piece.smoke, "granted": piece.granted, "composed": piece.composed}
        result = run_cell(piece.study, piece.cell, piece.seed, **more)
    except Exception as error:
        if os.environ.get("MINITF_TRACE"):
            traceback.print_exception(error)
        result = Result(*piece.name, error=_told(error))
        final = isinstance(error, Diverged)
    Store(piece.folder).write(result, piece.key, final)
    return result, time.monotonic() - begun


def _told(error: Exception) -> str:
    text = " ".join(str(error).split("Config search path")[0].split())  # Hydra's are long
    named = not isinstance(error, ConfigError | DataError)
    return f"{type(error).__name__}: {text}" if named else text
