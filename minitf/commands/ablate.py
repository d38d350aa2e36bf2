"""`minitf-ablate`: run the cells of a study, and say what they decide."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import Job, combinations, entry, friendly_errors, take_raw
from minitf.commands.tell_verdicts import tell
from minitf.commands.typed_cells import check_arguments, check_words, setting, words
from minitf.config import group_options
from minitf.errors import ConfigError, DataError
from minitf.files import check_writable, user_path
from minitf.hints import command
from minitf.suited import suited
from minitf.training.stop import Interrupted
from minitf.typed import check_typed

if TYPE_CHECKING:
    from minitf.studies.result import Result
    from minitf.studies.study import Study

RAW = ("base", "over", "runs", "with")
ALL = "study=all"


def main() -> None:
    """Read the command line, do what is not done yet, and print tables and verdicts."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    asked = f"{command('ablate')} {shlex.join(sys.argv[1:])}".strip()
    whole = ALL in sys.argv[1:]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != ALL]
    raw = take_raw(RAW)
    failed: list[str] = []
    with friendly_errors("ablate"):
        if {"-m", "--multirun"} & set(sys.argv[1:]) and (raw or whole):
            raise ConfigError(f"{ALL if whole else next(iter(raw))} is no sweep: leave -m away; -m study=a,b is one")
        check_typed(sys.argv[1:])
        studies = [argument for argument in sys.argv[1:] if argument.startswith("study=")]
        if len(studies) > 1:
            raise ConfigError(f"{' and '.join(studies)}: one study at a time, or -m study=a,b, or {ALL}")

    def work(cfg: DictConfig, job: Job) -> None:
        if errors := ablate(cfg, job, raw, whole, asked):
            cells = "1 cell" if len(errors) == 1 else f"{len(errors)} cells"
            told = f"{cells} failed: {'; '.join(errors[:3])}{' ...' if len(errors) > 3 else ''}"
            if job.sweep:
                raise DataError(told)
            failed.append(told)

    entry("ablate", work)
    if failed:
        print(f"error: {failed[0]}", file=sys.stderr)
        sys.exit(1)


def ablate(cfg: DictConfig, job: Job, raw: dict[str, str], whole: bool, asked: str) -> list[str]:
    """Do the cells that are missing, print what all of them say, and keep it in the folder of results.

    Args:
        cfg: as in configs/ablate.yaml.
        job: says what was chosen.
        raw: `base`, `over`, `runs` and `with` exactly as typed.
        whole: all studies.
        asked: the whole command, for the tables.

    Returns:
        The cells that failed, with the reason.

    Raises:
        ConfigError: nothing to do, or a choice that cannot work.
        Interrupted: a signal came; what is finished is kept.
    """
    check_settings(cfg, job, raw, whole)
    n_seeds = cfg.seeds or (1 if cfg.smoke else None)
    # before the imports below, which take seconds
    studies = [replace(study, seeds=n_seeds or study.seeds) for study in chosen(cfg, job, raw, whole)]
    with job.stop.deferred():  # an import that is cut short would look like a fault
        from minitf.studies.runner import run
        from minitf.studies.store import Store
    folder = user_path(cfg.folder + ("-smoke" if cfg.smoke else ""))
    check_writable(folder)
    if "runs" in raw:
        from minitf.studies.finished_runs import read_runs

        study, results = read_runs(user_path(raw["runs"]), cfg.metric)
        return tell([(study, results)], folder, cfg.smoke, asked)
    try:
        found = run(studies, Store(folder), cfg.smoke, n_jobs(cfg, job), lambda line: print(line, file=sys.stderr))
    except Interrupted as wish:
        job.stop.ignore()
        print(f"\ninterrupted by {wish.name}; what is finished is kept: give the command again", file=sys.stderr)
        wish.told = True
        raise
    decided = [(decided_by(study, found[study.name], cfg), found[study.name]) for study in studies]
    return tell(decided, folder, cfg.smoke, asked)


def check_settings(cfg: DictConfig, job: Job, raw: dict[str, str], whole: bool) -> None:
    """Raise ConfigError for what does not go together, and for numbers that cannot be."""
    ways = {"study=...": job.choices.get("study") is not None, ALL: whole, "over=...": "over" in raw}
    ways["runs=..."] = "runs" in raw
    given = [way for way, there in ways.items() if there]
    if "base" in raw and "over" not in raw:
        raise ConfigError("base=... goes with over=..., which says what the cells differ in")
    if len(given) != 1:
        if given:
            raise ConfigError(f"{' and '.join(given)} do not go together: give one of them")
        options = ", ".join(group_options("study"))
        raise ConfigError(
            f"what is to be decided? Give study=NAME ({options}), {ALL}, or cells of your own: "
            "base='data=repeat task=answer' over='model/position=rope,alibi'"
        )
    if "with" in raw and given[0] != "study=...":
        raise ConfigError(
            f"with=... is a setting for one study; with {given[0]} type it into base=..., or leave it away"
        )
    if cfg.metric is not None and given[0] not in ("over=...", "runs=..."):
        raise ConfigError(f"the study says which metric decides: leave metric={cfg.metric} away")
    if not str(cfg.folder).strip():
        raise ConfigError("folder= is empty: name a folder for the results")
    for name in ("seeds", "jobs"):
        value = cfg[name]
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigError(f"{name} ({value!r}) must be a whole number of at least 1, or null")


def chosen(cfg: DictConfig, job: Job, raw: dict[str, str], whole: bool) -> list[Study]:
    """The studies that were asked for, with the cells that were; none where runs of a sweep are read.

    Raises:
        ConfigError: a study that says something impossible, or cells that are not there.
    """
    from minitf.studies.adhoc import make_study
    from minitf.studies.study import load, read

    if "runs" in raw:
        return []
    if whole:
        studies = [load(name) for name in group_options("study")]
        if long := [f"study={study.name}" for study in studies if study.takes_long and not cfg.smoke]:
            print(f"left out, for it takes long: {', '.join(long)}", file=sys.stderr)
        studies = [study for study in studies if cfg.smoke or not study.takes_long]
    elif "over" in raw:
        base, over = words(raw.get("base", ""), "base"), words(raw["over"], "over")
        if added := suited(base):
            print(f"with it goes {' '.join(added)}; configs/suited.yaml says so", file=sys.stderr)
        check_words([*added, *base], over)
        studies = [make_study([*added, *base], combinations(over), cfg.metric or "loss")]
    else:
        studies = [read(job.choices["study"], OmegaConf.to_container(cfg.study, resolve=False))]
    studies = [study.only(list(cfg.cells)) for study in studies] if cfg.cells else studies
    if "with" in raw:
        (study,) = studies
        cells = {} if study.run else {cell: study.overrides(cell) for cell in study.cells}
        found = setting(raw["with"], cells)
        if study.run:
            check_arguments(study.run["_target_"], found)
        return [study.with_setting(found)]
    return studies


def n_jobs(cfg: DictConfig, job: Job) -> int | None:
    """Processes; one where a launcher already runs several jobs of a sweep side by side."""
    launched = job.sweep is not None and job.choices.get("hydra/launcher", "basic") != "basic"
    return 1 if launched and cfg.jobs is None else cfg.jobs


def decided_by(study: Study, results: Sequence[Result], cfg: DictConfig) -> Study:
    """The study; of cells that were typed, with the metric that decides where none was said."""
    good = [result for result in results if not result.error]
    if study.source or study.claim or cfg.metric is not None or not good:
        return study
    return replace(study, metric="accuracy" if all("accuracy" in result.scores for result in good) else "loss")
