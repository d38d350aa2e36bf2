import itertools

import parts
import pytest
import torch

from minitf.analysis.forward import run
from minitf.analysis.matching import (
    best_permutation,
    match_scores,
    pattern_similarity,
    role_stability,
    score_similarity,
)
from minitf.analysis.over_time import over_time, phase_change
from minitf.errors import DataError
from minitf.tap import Tap


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_the_permutation_is_the_best_of_all(n):
    for seed in range(20):
        torch.manual_seed(seed)
        similarity = torch.randn(n, n).round(decimals=seed % 3)  # ties too
        best = max(sum(similarity[i, j].item() for i, j in enumerate(p)) for p in itertools.permutations(range(n)))
        found = best_permutation(similarity)
        assert sorted(found.order) == list(range(n))
        assert found.similarity * n == pytest.approx(best, abs=1e-5)


def test_twenty_heads_are_matched_as_well():
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    scores = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    assert best_permutation(score_similarity(scores, scores[order])).order == tuple(order.argsort().tolist())


def permuted(model, orders):
    """A copy of a model whose heads stand in another order."""
    copy = parts.model("gpt_tiny", scale=6)
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        for layer, order in zip(copy.layers, orders, strict=True):
            for matrix in layer.attention.projection.by_head().values():
                matrix.copy_(matrix[list(order)].clone())
    return copy


def test_a_permuted_copy_of_a_model_is_matched_back():
    model = parts.model("gpt_tiny", scale=6)
    orders = [(2, 0, 3, 1), (1, 3, 2, 0)]
    copy = permuted(model, orders)
    ids = torch.randint(31, (3, 10), generator=torch.Generator().manual_seed(1))
    patterns = []
    with torch.no_grad():
        for one in (model, copy):
            with Tap(one, at="layers.*.attention.weights") as tap:
                run(one, {"ids": ids})
            patterns.append(tap.values)
    for layer, order in enumerate(orders):
        a, b = (found[f"layers.{layer}.attention.weights"] for found in patterns)
        matching = best_permutation(pattern_similarity(a, b))
        back = tuple(order.index(h) for h in range(4))
        assert matching.order == back
        assert matching.similarity == pytest.approx(1, abs=1e-5)
        assert torch.allclose(b[:, list(matching.order)], a, atol=1e-5)


def test_pattern_similarity_by_hand():
    a, b = torch.eye(3)[None, None], torch.full((1, 1, 3, 3), 1 / 3)
    assert float(pattern_similarity(a, b)) == pytest.approx(1 / 3)
    assert float(pattern_similarity(a, a)) == 1


def test_roles_that_move_between_heads_are_stable_and_those_that_vanish_are_not():
    seeds = [
        {"0": torch.tensor([[0.9, 0.0], [0.1, 0.8]])},
        {"0": torch.tensor([[0.1, 0.7], [0.8, 0.1]])},
        {"0": torch.tensor([[0.7, 0.0], [0.1, 0.1]])},
    ]
    first, second = role_stability(seeds, ["previous", "induction"], level=0.4)
    assert (first.share, second.share) == pytest.approx((1.0, 2 / 3))
    assert first.best == pytest.approx((0.9, 0.8, 0.7))
    assert first.spread == pytest.approx(0.2)
    assert second.spread == pytest.approx(0.7)
    assert first.matched[0] == pytest.approx((0.9, 0.8, 0.7)), "the same head after matching"
    assert second.matched[1] == pytest.approx((0.8, 0.7, 0.1))


def test_models_that_differ_are_refused():
    with pytest.raises(DataError, match="same layers"):
        match_scores({"0": torch.zeros(4, 2)}, {"0": torch.zeros(3, 2)})
    with pytest.raises(DataError, match="finite"):
        best_permutation(torch.tensor([[float("nan")]]))
    with pytest.raises(DataError, match="at least one"):
        role_stability([], [])


def test_a_value_along_snapshots():
    held = []

    def load(step):
        held.append(step)
        return torch.nn.Linear(1, step)

    course = over_time(load, [4, 1, 2], lambda model: model.out_features / 10)
    assert course == [(1, 0.1), (2, 0.2), (4, 0.4)]
    assert held == [1, 2, 4]
    assert phase_change(course, 0.2) == 2
    assert phase_change([*course, (8, 0.1), (16, 0.9)], 0.2) == 16, "what falls back was no change"
    assert phase_change(course, 0.5) is None
