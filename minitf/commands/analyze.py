"""`minitf-analyze`: what the heads of a trained model do, and whether it matters."""

from __future__ import annotations

import glob
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import entry, friendly_errors, take_raw
from minitf.commands.generate import check_run
from minitf.commands.look_at import look_at, prepare, take_data
from minitf.config import build
from minitf.errors import ConfigError
from minitf.files import check_writable, user_path
from minitf.hints import command, show_path
from minitf.typed import check_typed

if TYPE_CHECKING:
    from torch import nn

    from minitf.analysis.findings import Findings
    from minitf.data.base import BaseData

FOLDER = "analysis"
ABLATIONS = ("zero", "mean", "resample")


def main() -> None:
    """Read the command line, print the tables, and write heads.json, the page and the figures."""
    asked = f"{command('analyze')} {shlex.join(sys.argv[1:])}"
    raw = take_raw(("run", "heads", "others", "out"))
    with friendly_errors("analyze"):
        if {"-m", "--multirun"} & set(sys.argv[1:]):
            raise ConfigError("this command has no sweeps: call it once for each run")
        check_typed(sys.argv[1:])
        typed = take_data()
    entry("analyze", lambda cfg, job: print(analyze(cfg, raw, typed, asked)))


def analyze(cfg: DictConfig, raw: dict[str, str], typed: list[str], asked: str) -> str:
    """Find out what the heads of a run do, write it down, and return the tables.

    Args:
        cfg: as in configs/analyze.yaml.
        raw: `run`, `heads`, `others` and `out` exactly as typed.
        typed: settings of the data, such as "data=repeat" or "data.seq_len=64".
        asked: the whole command, for the page.

    Raises:
        ConfigError: no run, or none that can be loaded; heads, numbers or data that cannot be.
        DataError: the data is not there, or not the one that the run was trained on.
        OSError: a file cannot be written.
    """
    if "run" not in raw:
        raise ConfigError("give the run whose heads are to be looked at, run=FOLDER: the folder that training printed")
    from minitf.files import write_json
    from minitf.report import seeds_text as seeds
    from minitf.report.heads_text import table
    from minitf.report.training_text import training_text
    from minitf.report.written import write
    from minitf.training.metrics import FILE, read_metrics

    folder = user_path(raw["run"])
    others = other_runs(raw.get("others"), folder)
    for one in (folder, *map(user_path, others)):
        check_run(one)
    check_settings(cfg)
    out = user_path(raw["out"]) if "out" in raw else folder / FOLDER
    check_writable(out)
    found, model, data, batches = look(raw["run"], cfg, typed, raw.get("heads"), asked)
    metrics = read_metrics(folder) if (folder / FILE).is_file() else []  # a run may have logged elsewhere
    page, files = write(
        out,
        found,
        model,
        data,
        batches,
        snapshots(folder, cfg),
        metrics,
        n_examples=cfg.examples,
        max_tokens=cfg.max_tokens,
        lang=cfg.lang,
        with_figures=cfg.figures,
        bertviz=cfg.bertviz,
    )
    parts = [table(found), training_text(page.snapshots, metrics)]
    if others:
        runs = [found]
        for other in others:
            runs.append(look(other, cfg, typed, raw.get("heads"), asked)[0])
            seeds.check_alike(runs)
        parts.append(seeds.seeds_table(runs))
        write_json(out / "seeds.json", seeds.to_dict(runs))
        files.append(("seeds", out / "seeds.json"))
    return "\n\n".join([*filter(None, parts), "\n".join(f"{what:<8} {show_path(path)}" for what, path in files)])


def other_runs(text: str | None, run: Path) -> list[str]:
    """Folders of further runs.

    Args:
        text: as typed: paths with commas between them; `*` stands for any part of a name, and of what it finds the run
            itself is left out.
        run: the folder that they stand beside.

    Raises:
        ConfigError: nothing has such a name, or a run is given twice: its agreement with itself would say nothing.
    """
    found: list[str] = []
    seen = {run.resolve()}
    for part in (text or "").split(","):
        name = part.strip()
        if not name:
            continue
        paths = sorted(glob.glob(str(user_path(name)))) if glob.has_magic(name) else [name]
        if not paths:
            raise ConfigError(f"others: there is no {name}")
        for path in paths:
            own = user_path(path).resolve()
            if own in seen and glob.has_magic(name):
                continue
            if own in seen:
                raise ConfigError(f"others: {name} is there already; give other runs, each of them once")
            seen.add(own)
            found.append(path)
    return found


def look(
    run: str, cfg: DictConfig, typed: list[str], heads: str | None, asked: str
) -> tuple[Findings, nn.Module, BaseData, list[dict]]:
    """Find out about one run: the findings, its model, the data and the rows that were read.

    Args:
        run: its folder, as typed.
        cfg, typed, asked: as for `analyze`.
        heads: as typed.

    Raises:
        ConfigError, DataError: as for `analyze`.
    """
    from minitf.analysis.chosen import chosen_heads
    from minitf.analysis.findings import find_out

    model, run_cfg, data, about = load(user_path(run), run, cfg, typed, heads)
    batches = rows(data, cfg.n)
    check_resample(cfg, batches)
    found = find_out(
        model,
        batches,
        untrained(run_cfg, cfg.untrained, cfg.seed),
        chosen_heads(model, heads),
        measure="loss" if about["takes"] in ("text", "hidden_text") else "accuracy",
        ablate=cfg.ablate,
        n_shuffles=cfg.shuffles,
        n_draws=cfg.draws,
        seed=cfg.seed,
        about={**about, "command": asked},
    )
    return found, model, data, batches


def check_settings(cfg: DictConfig) -> None:
    """Raise ConfigError for numbers that cannot be."""
    for name, least in [("untrained", 0), ("shuffles", 1), ("draws", 0), ("examples", 1), ("max_tokens", 2)]:
        value = cfg[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} ({value!r}) must be a whole number of at least {least}")
    if cfg.n is not None and (not isinstance(cfg.n, int) or isinstance(cfg.n, bool) or cfg.n < 1):
        raise ConfigError(f"n ({cfg.n!r}) must be a whole number of at least 1, or null for the whole split")
    if cfg.ablate not in ABLATIONS:
        raise ConfigError(f"ablate ({cfg.ablate!r}) must be one of {', '.join(ABLATIONS)}")
    if cfg.lang not in ("en", "zh"):
        raise ConfigError(f"lang ({cfg.lang!r}) must be en or zh")


def check_resample(cfg: DictConfig, batches: list[dict]) -> None:
    """Raise ConfigError if a batch has no other row that heads could read instead."""
    sizes = [len(batch["ids"]) for batch in batches]
    if cfg.ablate == "resample" and 1 in sizes:
        n = sum(sizes)
        raise ConfigError(
            f"ablate=resample takes what heads read in another row of the same batch, and of these {n} rows one is "
            f"alone in its batch: n={n + 1 if n == 1 else n - 1}, or ablate=mean"
        )


def load(
    folder: Path, run: str, cfg: DictConfig, typed: list[str], heads: str | None = None
) -> tuple[nn.Module, DictConfig, BaseData, Any]:
    """Model, config, prepared data, and what is to be said about them.

    Args:
        folder: of the run.
        run: as typed.
        cfg: `checkpoint` and `allow` of it are read.
        typed: settings of the data.
        heads: as typed; only checked.

    Raises:
        ConfigError, DataError: as for `analyze`.
    """
    from minitf.analysis.chosen import chosen_heads
    from minitf.commands.rehearse import fit_to_task
    from minitf.commands.start import Start, check_same_data, read_record
    from minitf.runs import check_config, load_run
    from minitf.training.checkpoint import find_checkpoint

    allow = list(cfg.allow)
    model, tokenizer, run_cfg = load_run(folder, cfg.checkpoint, allow)
    # beside the model its data and its task are built: what they are made of is asked first
    check_config(OmegaConf.to_container(run_cfg), allow)
    chosen_heads(model, heads)  # before the data, which may take minutes
    record = read_record(folder)
    data_cfg, added = look_at(run_cfg, typed, record["choices"].get("data"))
    if added:
        print(f"with it goes {' '.join(added)}: where answers stand is known here", file=sys.stderr)
    objective = build(run_cfg.task)
    data = prepare(data_cfg, run_cfg, tokenizer)
    if not typed:
        check_same_data(Start(run_cfg, record=record), data, folder)
    takes = objective.takes
    if takes == "text" and data.gives == "answers":  # a model of text reads rows of symbols as well, such as repeats
        takes = data.gives
    else:
        fit_to_task(data, objective)
    about = {
        "run": run,
        "checkpoint": str(cfg.checkpoint),
        "step": int(find_checkpoint(folder, cfg.checkpoint).stem.rpartition("=")[2]),
        "data": data.name,
        "data_settings": [*typed, *added],
        "takes": takes,
        "ablate": cfg.ablate,
    }
    return model, run_cfg, data, about


def rows(data: BaseData, n: int | None) -> list[dict]:
    """Batches of the first rows of the validation split; where gold speaks of source code, also of its indentation.

    Args:
        data: prepared.
        n: rows; None: all.
    """
    from minitf.analysis.heads.indentation import with_indentation
    from minitf.commands.score.measure import Split

    found = list(Split(data, "val", n))
    tokenizer = getattr(data, "tokenizer", None)
    if tokenizer is None or not data.roles:
        return found
    return [with_indentation(batch, tokenizer.token_bytes) for batch in found]


def untrained(run_cfg: DictConfig, n: int, seed: int) -> Iterator[nn.Module]:
    """Models of the run's config as they are before training.

    Args:
        run_cfg: of the run.
        n: how many.
        seed: of the first one; that of the run is left out.
    """
    import torch

    seeds = [s for s in range(seed + 1, seed + n + 2) if s != run_cfg.seed][:n]
    for own in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(own)
            yield build(run_cfg.model).eval()


def snapshots(folder: Path, cfg: DictConfig) -> Iterator[tuple[int, nn.Module]]:
    """The models that a run has kept along its training, one at a time.

    Args:
        folder: of the run.
        cfg: `movie` and `allow` of it are read.
    """
    from minitf.runs import load_run
    from minitf.training.checkpoint import checkpoints

    if cfg.movie:
        for step, _ in sorted(checkpoints(folder / "checkpoints", "snapshot")):
            yield step, load_run(folder, step, list(cfg.allow))[0]
