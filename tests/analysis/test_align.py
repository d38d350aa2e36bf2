"""Where heads point, by hand."""

import pytest
import torch

from minitf.analysis.align import all_gold, field_accuracy, pointed

# one row, two heads, three places of the target, four source tokens
WEIGHTS = torch.tensor(
    [
        [
            [[0.7, 0.1, 0.1, 0.1], [0.0, 0.1, 0.2, 0.7], [0.0, 0.9, 0.1, 0.0]],
            [[0.1, 0.7, 0.1, 0.1], [0.0, 0.6, 0.2, 0.2], [1.0, 0.0, 0.0, 0.0]],
        ]
    ]
)
GOLD = torch.tensor([[[0, 1], [3, -1], [-1, -1]]])


def test_by_hand():
    hits, n = pointed(WEIGHTS, GOLD)
    assert (hits.tolist(), n) == ([2, 1], 2)
    assert field_accuracy(WEIGHTS, GOLD).tolist() == [1.0, 0.5]
    # a batch is the sum of its rows
    hits, n = pointed(WEIGHTS.repeat(3, 1, 1, 1), GOLD.repeat(3, 1, 1))
    assert (hits.tolist(), n) == ([6, 3], 6)


def test_a_place_without_gold_does_not_count():
    none = torch.full_like(GOLD, -1)
    assert pointed(WEIGHTS, none)[1] == 0
    assert field_accuracy(WEIGHTS, none).isnan().all()


def test_gold_of_all_roles_together():
    batch = {"ids": GOLD, "gold.year": GOLD, "gold.day": torch.tensor([[[-1], [-1], [2]]])}
    assert all_gold(batch).tolist() == [[[0, 1, -1], [3, -1, -1], [-1, -1, 2]]]
    with pytest.raises(KeyError, match="no gold"):
        all_gold({"ids": GOLD})


def test_shapes_that_do_not_belong_together():
    with pytest.raises(ValueError, match=r"need gold \(1, 3, K\), got \(1, 2, 2\)"):
        pointed(WEIGHTS, GOLD[:, :2])
    with pytest.raises(ValueError, match="gold names column 4, but there are 4 source tokens"):
        pointed(WEIGHTS, GOLD + 1)
