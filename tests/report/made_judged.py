"""Judged studies made by hand, as the page gets them: plain data."""

import math

from minitf.studies.item import Item, as_data
from minitf.studies.result import Result
from minitf.studies.study import read
from minitf.studies.verdict import judge

CLEAR = {"with scale": (0.9, 0.95, 1.0), "without": (0.1, 0.2, 0.3)}
MORE = {"more": "with scale", "than": "without", "by": 0.5, "says": "it helps"}


def judged(name, values, *expect, claim="It helps.", errors=(), smoke=False, **more):
    cells = more.pop("cells", None) or {cell: [f"model.{cell.replace(' ', '_')}=true"] for cell in values}
    node = {"question": "Does it help?", "claim": claim, "source": "widely repeated", "metric": "accuracy"}
    study = read(name, {**node, "cells": cells, "expect": list(expect), **more})
    results = [
        Result(name, cell, seed, {"accuracy": v, "loss": 2.0 * v - 1}, n_params=12_345, n_steps=300, seconds=2.5)
        for cell, of in values.items()
        for seed, v in enumerate(of)
        if v is not None
    ]
    results += [Result(name, cell, seed, error=error) for cell, seed, error in errors]
    return as_data(Item(study, results, judge(study, results, smoke), f"python scripts/ablate.py study={name}"))


def many():
    """One of each verdict, with what can go wrong, and figures of an earlier run."""
    figures = {"with scale": {"accuracy": [0.92, 0.99]}, "without": {"accuracy": [0.5, 0.6]}}
    level = {"cell": "with scale", "at_least": 0.85, "when": "the scale is there"}
    loss = {"more": "without", "than": "with scale", "metric": "loss"}
    wide = {f"a cell with a long name, number {i} of six cells": (i * 10.0**i, 10.0**i, 10.0**i) for i in range(6)}
    return [
        judged(
            "clear", CLEAR, MORE, level, figures=figures, covers=["C1", "T2"], base=["data=repeat", "model=gpt_tiny"]
        ),
        judged("against", CLEAR, loss, claim="Without it the loss is larger. " * 6),
        judged("depends", CLEAR, level, {"cell": "without", "at_least": 0.85, "when": "it is gone"}),
        judged("overlap", {"with scale": (0.5, 0.6, 0.4), "without": (0.45, 0.4, 0.3)}, {**MORE, "by": 0}),
        judged(
            "broken",
            {"with scale": (0.9, math.nan, None), "without": (0.1, 0.1)},
            MORE,
            errors=[("without", 2, "DataError: loss or gradient is not finite in step 17: the run has diverged")],
        ),
        judged("trial", {"with scale": (0.5,), "without": (0.5,)}, MORE, seeds=1, smoke=True),
        judged("wide", wide, seeds=3),
        judged(
            "many seeds", {c: [v + i / 100 for i in range(9) for v in of[:1]] for c, of in CLEAR.items()}, MORE, seeds=9
        ),
    ]
