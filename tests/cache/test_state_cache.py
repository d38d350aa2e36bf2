import io

import pytest
import torch

from minitf.cache.dynamic import Dynamic
from minitf.cache.state import State
from minitf.errors import ConfigError


def state(rows=2):
    return torch.randn(rows, 4), torch.randn(rows, 3, 4, 4)


def test_it_holds_the_last_state_and_the_last_positions():
    cache, first, second = State(), state(), state()
    assert (cache.n_seen, cache.n_held, cache.n_bytes, cache.plain) == (0, 0, 0, True)
    cache.update(*first, pos=torch.arange(5)[None], plain=True)
    pos = torch.tensor([[5, 6, -1], [-1, -1, -1]])
    got, q_pos, last, plain = cache.update(*second, pos=pos, plain=False)
    held, held_pos = cache.read()
    for x, y, z in zip(second, got, held, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)
    assert torch.equal(q_pos, pos)
    assert last.tolist() == held_pos.tolist() == [[6], [4]]
    assert (plain, cache.plain, cache.n_seen, cache.n_held) == (False, False, 8, 1)


def test_its_memory_does_not_grow():
    cache = State()
    for n in (100, 1, 1):
        many = torch.randn(2, n, 4)
        cache.update(many[:, -1], pos=torch.arange(n)[None], plain=True)  # a view of all states
        assert cache.n_bytes == 2 * 4 * 4
        assert cache.read()[1].numel() == 1


@pytest.mark.parametrize("pos", [[[0, 1]], [[0, 1], [-1, 0]]])
def test_rows_are_selected(pos):
    cache, given, rows = State(), state(), torch.tensor([1, 1, 0])
    cache.select(rows)  # nothing yet
    cache.update(*given, pos=torch.tensor(pos), plain=True)
    cache.select(rows)
    held, last = cache.read()
    assert all(torch.equal(h, g[rows]) for h, g in zip(held, given, strict=True))
    assert last[:, 0].tolist() == ([1] if len(pos) == 1 else [0, 0, 1])


def test_it_cannot_go_back_but_to_the_beginning():
    cache = State()
    cache.update(*state(), pos=torch.arange(5)[None], plain=True)
    cache.crop(5)
    for n, message in ((4, "one state for all of them"), (6, "between 0")):
        with pytest.raises(ConfigError, match=message):
            cache.crop(n)
    assert cache.n_seen == 5
    with pytest.raises(ConfigError, match="another batch or model"):
        cache.update(*state(3), pos=torch.tensor([[5]]), plain=True)
    assert cache.n_seen == 5
    cache.crop(0)
    with pytest.raises(ConfigError, match="empty"):
        cache.read()
    cache.update(*state(3), pos=torch.tensor([[0]]), plain=True)
    assert cache.n_seen == 1


def test_it_can_be_stored():
    cache, other, saved = State(), State(), io.BytesIO()
    cache.update(*state(), pos=torch.tensor([[0], [-1]]), plain=False)
    torch.save(cache.state_dict(), saved)
    saved.seek(0)
    other.load_state_dict(torch.load(saved))
    assert all(torch.equal(a, b) for a, b in zip(cache.read()[0], other.read()[0], strict=True))
    assert (other.read()[1].tolist(), other.n_seen, other.plain) == ([[0], [-1]], 1, False)
    assert type(cache.for_source()) is Dynamic
