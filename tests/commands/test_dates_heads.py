"""Dates are solved within a minute, by a head that points to where each digit stands."""

import json

import pytest
import torch
from runs import train_here

from minitf.analysis.align import all_gold, pointed
from minitf.commands.evaluate import evaluate, load
from minitf.config import compose
from minitf.suited import suited
from minitf.tap import Tap

TYPED = ["data=dates", "+experiment=dates"]


def best_head(folder):
    """Share of the digits of the validation split that the best head of cross-attention finds the field of."""
    model, objective, data, _ = load(str(folder), compose("evaluate", []))
    hits, n = {}, 0
    with torch.inference_mode():
        for batch in data.val_batches():
            with Tap(model, at="decoder.layers.*.cross_attention.weights") as tap:
                objective(model, batch)
            for name, weights in tap.values.items():
                found, counted = pointed(weights, all_gold(batch))
                hits[name] = hits.get(name, 0) + found
            n += counted
    return max(float(found.max()) / n for found in hits.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_head_points_into_the_field_of_each_digit(seed, tmp_path):
    run = train_here(tmp_path / "run", [*TYPED, *suited(TYPED), f"seed={seed}"])
    evaluate(compose("evaluate", []), {"run": str(run)})
    scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores["exact"] >= 0.99
    assert best_head(run) >= 0.95
