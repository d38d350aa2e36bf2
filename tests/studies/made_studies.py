"""Studies and results made by hand: known numbers, no training."""

from minitf.studies.result import Result
from minitf.studies.study import read

CLEAR = {"with": (0.9, 0.95, 1.0), "without": (0.1, 0.2, 0.3)}
OVERLAP = {"with": (0.5, 0.6, 0.4), "without": (0.45, 0.4, 0.3)}
EQUAL = {"with": (1.0, 1.0, 1.0), "without": (1.0, 1.0, 1.0)}
MORE = {"more": "with", "than": "without"}


def study(*expect, cells=("with", "without"), **more):
    node = {
        "question": "Does it need this?",
        "claim": "It does.",
        "source": "widely repeated in tutorials",
        "metric": "accuracy",
        "cells": {cell: [f"x={cell}"] for cell in cells},
        "expect": list(expect),
        **more,
    }
    return read("made", node)


def results(values, metric="accuracy", **more):
    return [
        Result("made", cell, seed, {metric: value, "loss": 1.0}, seconds=2.0, **more)
        for cell, of in values.items()
        for seed, value in enumerate(of)
    ]
