"""What every kind of cache has in common: how it is asked for, and what it says that it holds."""

import parts
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minitf.cache.dynamic import Dynamic
from minitf.cache.static import Static
from minitf.cache.window import Window
from minitf.errors import ConfigError


@pytest.mark.parametrize("preset", ["gpt_tiny", "encdec_tiny", "bahdanau", "gru_none"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Dynamic(), r"one Dynamic cache that is made already: .*Dynamic without brackets or lambda: Dynamic\(\.\.\.\)"),
        ("static", r"new_caches\('static'\): give what makes a cache, a class such as Dynamic"),
        (None, r"new_caches\(None\): .*to do without, caches=None"),
        (Window, r"calls Window\(\) .*missing a required argument: 'window'.* give lambda: Window\(\.\.\.\)"),
    ],
)
def test_what_cannot_make_caches_is_refused_in_one_sentence(preset, make, message):
    model = parts.model(preset)
    with pytest.raises(ConfigError, match=message):
        model.new_caches(make)
    assert model.new_caches(lambda: Static(5))


class Anything(TorchDispatchMode):
    """Refuses every operation on a tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} was needed")


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("kind", parts.cache_kinds())
def test_what_is_held_is_known_without_asking_a_tensor(kind, side):
    cache, pos = parts.factory("cache", kind)(), parts.padded([9, 2], side)
    most = 9 if cache.keeps is None else sum(cache.keeps)
    cache.reserve(9)
    for i in range(9):
        at = torch.tensor([[i]]) if pos is None else pos[:, i : i + 1]
        cache.update(torch.zeros(2, 2, 1, 4), pos=at, plain=pos is None)
        with Anything():
            assert cache.n_held == min(i + 1, most)
    spare = 3 if "spare=3" in kind else 0  # places of which a later query may read none
    assert (cache.read()[1] >= 0).sum(-1).max() == min(9, most + spare), "the row without padding has so many"
