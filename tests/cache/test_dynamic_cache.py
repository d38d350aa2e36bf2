import pytest
import torch

from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError


def entries(n, rows=2):
    return torch.randn(rows, 3, n, 4), torch.randn(rows, 3, n, 5)


def filled(n=5, pos=None):
    cache = Dynamic()
    k, v = entries(n)
    pos = torch.arange(n)[None] if pos is None else pos
    cache.update(k, v, pos=pos, plain=True)
    return cache, k, v


def test_update_returns_all_that_is_held():
    cache, k, v = filled(5)
    k2, v2 = entries(2)
    (all_k, all_v), q_pos, k_pos, plain = cache.update(k2, v2, pos=torch.tensor([[5, 6]]), plain=True)
    assert torch.equal(all_k, torch.cat([k, k2], 2))
    assert torch.equal(all_v, torch.cat([v, v2], 2))
    assert q_pos.tolist() == [[5, 6]]
    assert k_pos.tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    assert plain
    held, held_pos = cache.read()
    assert torch.equal(held[0], all_k)
    assert torch.equal(held_pos, k_pos)
    assert (cache.n_seen, cache.n_held, cache.n_bytes) == (7, 7, 2 * 3 * 7 * (4 + 5) * 4)


def test_once_padded_never_plain_again_until_reset():
    cache, _, _ = filled(2)
    cache.update(*entries(1), pos=torch.tensor([[2], [-1]]), plain=False)
    *_, k_pos, plain = cache.update(*entries(1), pos=torch.tensor([[3], [2]]), plain=True)
    assert k_pos.tolist() == [[0, 1, 2, 3], [0, 1, -1, 2]]
    assert not plain
    assert not cache.plain
    cache.reset()
    assert (cache.n_seen, cache.n_bytes, cache.plain) == (0, 0, True)
    with pytest.raises(ConfigError, match="empty"):
        cache.read()


def test_select_reorders_and_repeats_rows():
    for pos in (torch.arange(3)[None], torch.tensor([[0, 1, 2], [-1, 0, 1]])):
        cache, k, v = filled(3, pos)
        cache.select(torch.tensor([1, 1, 0]))
        (got_k, got_v), got_pos = cache.read()
        assert torch.equal(got_k, k[[1, 1, 0]])
        assert torch.equal(got_v, v[[1, 1, 0]])
        assert torch.equal(got_pos.expand(3, -1), pos.expand(2, -1)[[1, 1, 0]])
    Dynamic().select(torch.tensor([0]))


def test_crop_forgets_the_end_and_its_memory():
    cache, k, _ = filled(6)
    cache.crop(4)
    (got_k, _), pos = cache.read()
    assert torch.equal(got_k, k[:, :, :4])
    assert pos.tolist() == [[0, 1, 2, 3]]
    assert cache.n_bytes == 2 * 3 * 4 * 9 * 4
    for n in (5, -1):
        with pytest.raises(ConfigError, match=rf"crop\({n}\).*holds 4 tokens"):
            cache.crop(n)
    cache.crop(0)
    assert cache.n_seen == 0


def test_state_goes_to_another_cache():
    cache, _, _ = filled(3)
    state, other = cache.state_dict(), Dynamic()
    other.load_state_dict(state)
    step = entries(1)
    first, second = (c.update(*step, pos=torch.tensor([[3]]), plain=True) for c in (cache, other))
    assert torch.equal(first[0][0], second[0][0])
    assert torch.equal(first[2], second[2])
    assert len(state["entries"][0][0, 0]) == 3  # what was taken does not grow with the cache
    empty = Dynamic()
    other.load_state_dict(empty.state_dict())
    assert other.n_seen == 0


@pytest.mark.parametrize(
    ("k", "v", "message"),
    [
        ((3, 3, 1, 4), (3, 3, 1, 5), "holds 2 rows, got 3"),
        ((2, 3, 1, 4), (2, 3, 1, 6), "entries"),
        ((2, 2, 1, 4), (2, 2, 1, 5), "entries"),
    ],
)
def test_entries_of_another_batch_or_model_are_refused(k, v, message):
    cache, _, _ = filled(3)
    with pytest.raises(ConfigError, match=message):
        cache.update(torch.zeros(k), torch.zeros(v), pos=torch.tensor([[3]]), plain=True)
    with pytest.raises(ConfigError, match="entries"):
        cache.update(*(e.double() for e in entries(1)), pos=torch.tensor([[3]]), plain=True)
    assert cache.n_seen == 3


def test_what_is_kept_is_no_more_than_what_is_held():
    joined = torch.randn(2, 3, 5, 12)
    k, v = joined[..., :4], joined[..., 4:8]
    for entries, n in (((k, v), 8), ((k.contiguous(),) * 2, 8), ((k.contiguous(), v.contiguous()), 8)):
        cache = Dynamic()
        cache.update(*entries, pos=torch.arange(5)[None], plain=True)
        assert cache.n_bytes == 2 * 3 * 5 * n * 4
        assert all(torch.equal(held, entry) for held, entry in zip(cache.read()[0], entries, strict=True))
