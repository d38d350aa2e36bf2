"""What `minitf-ablate` says of its cells: tables, a folder of verdicts, a page."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitf.errors import ConfigError
from minitf.files import write_json
from minitf.hints import command, show_path

if TYPE_CHECKING:
    from minitf.studies.item import Item
    from minitf.studies.result import Result
    from minitf.studies.study import Study

    Decided = tuple[Study, Sequence[Result]]


def tell(decided: Sequence[Decided], folder: Path, smoke: bool, asked: str) -> list[str]:
    """Print the tables, and write them, the verdicts and a page: of one study into its own folder.

    Args:
        decided: studies with their results.
        folder: of the results.
        smoke: the numbers mean nothing.
        asked: the whole command.

    Returns:
        The cells that failed, with the reason.

    Raises:
        ConfigError: the only study speaks of a metric that nobody has measured.
    """
    from minitf.report.studies import write_page
    from minitf.studies import table
    from minitf.studies.item import Item, as_data
    from minitf.studies.store import safe_name
    from minitf.studies.verdict import judge

    alone = len(decided) == 1
    items, errors = [], []
    for study, results in decided:
        errors += [f"{study.name}, {r.cell} s{r.seed}: {r.error.splitlines()[0]}" for r in results if r.error]
        if smoke and (missing := without(study, results)):
            print(f"note: in this trial of {study.name} no cell has {missing}", file=sys.stderr)
        try:
            judgement = judge(study, results, smoke)
        except ConfigError as error:
            if alone:
                raise
            errors.append(str(error))
            continue
        own = asked if alone else f"{command('ablate')} study={study.name}"
        items.append(Item(study, results, judgement, own))
    if alone:
        name = safe_name(items[0].study.name)  # a part of a study must not replace the tables of the whole
        folder = folder / (f"{name}-some-cells" if items[0].study.left_out else name)
    print(_text(items[0]) if alone else table.overview(items))
    table.folder(items, folder)
    if not alone:
        write_json(folder / "decided.json", in_short(items))
    write_page([as_data(item) for item in items], folder / "verdicts.html", about=versions())
    print(f"verdicts and page: {show_path(folder)}")
    return errors


def without(study: Study, results: Sequence[Result]) -> str:
    """Metrics that the study asks for and no result has, with those that there are; "" where all are there.

    Args:
        study, results: of it.
    """
    from minitf.studies.item import matters

    known = {metric for result in results for metric in result.scores}
    missing = [metric for metric in matters(study) if metric not in known]
    return f"{', '.join(missing)}; there are {', '.join(sorted(known))}" if missing and known else ""


def in_short(items: Sequence[Item]) -> dict[str, Any]:
    """What was decided: date, versions, and of each study verdict, reason, number of seeds and seconds of CPU."""
    return {
        "date": str(date.today()),
        "versions": versions().partition(", ")[2],
        "studies": {
            i.study.name: {
                "verdict": i.judgement.verdict,
                "why": i.judgement.why,
                "seeds": len(i.judgement.seeds),
                "seconds": round(i.judgement.seconds),
            }
            for i in items
        },
    }


def _text(item: Item) -> str:
    from minitf.studies import table

    return table.text(item.study, item.results, item.judgement, item.command)


def versions() -> str:
    """Date and versions, for the page."""
    import torch

    from minitf import __version__

    return f"{date.today()}, minitf {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
