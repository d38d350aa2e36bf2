import numpy as np
import pytest
import torch

from minitf.data import masking
from minitf.data.masking import MaskTokens
from minitf.errors import ConfigError

V, PAD, BOS, MASK = 50, 47, 48, 49
GIVEN = {"mask_id": MASK, "special_ids": [PAD, BOS], "vocab_size": V}


def rows(n_rows=200, length=106, seed=0):
    """Rows of two documents, bos + ordinary tokens, some padded: 20 000 tokens and more."""
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, 47, size=(n_rows, length)))
    ids[:, [0, 50]] = BOS
    real = torch.ones_like(ids, dtype=torch.bool)
    for row in range(0, n_rows, 3):
        ids[row, -(row % 7) - 1 :] = PAD
        real[row, -(row % 7) - 1 :] = False
    return ids, real


def test_of_the_chosen_80_percent_become_the_mask_10_random_10_stay():
    ids, real = rows()
    before = ids.clone()
    after, targets = MaskTokens()(ids, real, np.random.default_rng(1), **GIVEN)
    assert torch.equal(ids, before), "the caller's ids stay"
    chosen = targets != -100
    ordinary = real & (ids < 47)
    assert not (chosen & ~ordinary).any(), "padding and special tokens are never chosen"
    assert torch.equal(after[~chosen], ids[~chosen])
    assert torch.equal(targets[chosen], ids[chosen])
    assert ordinary.sum() >= 20_000
    assert torch.equal(chosen.sum(-1), (0.15 * ordinary.sum(-1) + 0.5).floor().long())
    masked, same = after[chosen] == MASK, after[chosen] == ids[chosen]
    assert abs(masked.float().mean() - 0.8) < 0.02
    assert abs((~masked & ~same).float().mean() - 0.1 * 46 / 47) < 0.02
    assert abs(same.float().mean() - 0.1) < 0.02
    drawn = after[chosen][~masked & ~same]
    assert drawn.max() < 47, "a random token is never special"
    assert len(drawn.unique()) == 47
    places = chosen[:, 51:90].float().mean(0)
    assert places.max() < 0.3, "every place is as likely"


@pytest.mark.parametrize("n_tokens", [1, 2, 5])
def test_a_short_row_has_one_hidden_token_and_an_empty_one_none(n_tokens):
    ids = torch.full((2, 6), PAD)
    ids[:, 0] = BOS
    ids[0, 1 : 1 + n_tokens] = 3
    real = ids != PAD
    for seed in range(50):
        _, targets = MaskTokens()(ids, real, np.random.default_rng(seed), **GIVEN)
        assert (targets != -100).sum(-1).tolist() == [1, 0]


def test_what_is_hidden_is_a_function_of_the_generator():
    ids, real = rows(4)
    first, again, other = (MaskTokens()(ids, real, np.random.default_rng(seed), **GIVEN)[1] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_which_ids_are_ordinary_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(np, "setdiff1d", lambda *sets, of=np.setdiff1d: asked.append(1) or of(*sets))
    masking._ordinary.cache_clear()
    ids, real = rows(4)
    drawn = [MaskTokens(mask=0, random=1)(ids, real, np.random.default_rng(s), **GIVEN)[0] for s in range(3)]
    assert len(asked) == 1
    MaskTokens(mask=0, random=1)(ids, real, np.random.default_rng(0), **{**GIVEN, "special_ids": [PAD, BOS, 0]})
    assert len(asked) == 2
    assert drawn[0].max() <= MASK


@pytest.mark.parametrize("rate", [0.0, 1.1, -1])
def test_the_rate_is_a_share(rate):
    with pytest.raises(ConfigError, match=r"task.rate \("):
        MaskTokens(rate)


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.3), (-0.1, 0.1), (0.5, -0.1)])
def test_mask_and_random_are_shares_of_the_chosen(mask, random):
    with pytest.raises(ConfigError, match=r"task.mask \("):
        MaskTokens(mask=mask, random=random)


def test_a_tokenizer_without_a_mask_token_is_refused():
    ids, real = rows(1)
    with pytest.raises(ConfigError, match="needs a tokenizer with a mask token"):
        MaskTokens()(ids, real, np.random.default_rng(0), mask_id=None, special_ids=[], vocab_size=V)
