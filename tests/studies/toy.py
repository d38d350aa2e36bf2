"""Studies of a model that trains in a moment."""

from minitf.studies.study import Study, read

BASE = [
    "data=repeat",
    "data.seq_len=16",
    "data.task.least=3",
    "data.task.most=5",
    "data.n_val=32",
    "data.batch_size=4",
    "task=answer",
    "model=gpt_tiny",
    "model/ffn=none",
    "model.d_model=16",
    "model.n_layers=1",
    "model.attention.n_heads=2",
    "optim=adamw",
    "schedule.warmup_steps=2",
    "trainer.max_steps=6",
    "trainer.precision=32-true",
]


def toy(**other) -> Study:
    node = {
        "question": "Does a position matter?",
        "claim": "It does.",
        "source": "none",
        "metric": "accuracy",
        "base": BASE,
        "cells": {"rope": ["model/position=rope"], "none, at all": ["model/position=none"]},
        "seeds": 2,
    }
    return read("toy", {**node, **other})
