"""Which cache serves which model, and how the others are refused."""

import parts
import pytest

from minitf.cache.window import Window
from minitf.config import build, compose
from minitf.errors import ConfigError

REFUSED = [
    (["cache=window"], [], r"layer 0 reads further \(mask Causal\) than this Window cache keeps: the last 256 tokens, "
     r"and the first 4. Take a larger cache.window, cache=dynamic, or cache.exact=false"),
    (["cache=window", "cache.window=63"], ["model/mask=sliding_window"], "keeps: the last 63 tokens, and the first 4"),
    (["cache=window", "cache.n_sink=3"], ["model/mask=window_sinks"], "keeps: the last 256 tokens, and the first 3"),
    (["cache=window"], ["model=mixed_tiny"], r"layer 1 reads further \(mask Causal\)"),
    (["cache=window", "cache.exact=false", "cache.window=1"], ["model/attention/projection=smeared"],
     "a window of 1 tokens, one of them for the key before .* leaves nothing to read: make cache.window larger"),
    (["cache=streaming"], ["model/position=learned"], "cannot serve position=learned, which is added to the embedding"),
    (["cache=streaming"], ["model/position=sinusoidal"], "cannot serve position=sinusoidal"),
    (["cache=streaming"], ["model/position=rope", "model/attention/projection=smeared"],
     r"cannot serve keys that read the token before them \(projection=smeared\)"),
    (["cache=streaming", "cache.exact=true"], ["model/position=rope"], "reads further"),
    (["cache=int8", "cache@cache.inner=window"], [],
     r"than this Int8 cache keeps.* Take a larger cache.inner.window, cache=dynamic, or cache.inner.exact=false"),
    (["cache=int8", "cache@cache.inner=streaming"], ["model/position=learned"],
     "choose cache@cache.inner=window or dynamic"),
]  # fmt: skip
FITS = [
    (["cache=window"], ["model/mask=sliding_window"]),
    (["cache=window"], ["model/mask=window_sinks"]),
    (["cache=window"], ["model/mask=causal_block_local"]),
    (["cache=window"], ["model/attention=none"]),
    (["cache=window"], ["model=mistral_tiny"]),
    (["cache=window", "cache.exact=false"], []),
    (["cache=streaming"], ["model/position=rope"]),
    (["cache=streaming"], ["model=mixed_tiny"]),
]


def model_and_caches(cache, overrides):
    preset = next((o.removeprefix("model=") for o in overrides if o.startswith("model=")), "gpt_tiny")
    chosen = [o for o in overrides if not o.startswith("model=")]
    size = ["model.n_layers=2"] if preset == "mixed_tiny" else []
    made = build(compose(f"model/{preset}", [*parts.sizes(preset), *size, *chosen]).model)
    return made.new_caches(build(compose(cache[0].replace("=", "/"), cache[1:]).cache))


@pytest.mark.parametrize(("cache", "model", "message"), REFUSED)
def test_what_would_change_the_model_is_refused_by_name(cache, model, message):
    with pytest.raises(ConfigError, match=message):
        model_and_caches(cache, model)


@pytest.mark.parametrize(("cache", "model"), FITS, ids=str)
def test_what_fits_is_given(cache, model):
    assert all(isinstance(made, Window) for made in model_and_caches(cache, model))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"window": 0}, "cache.window must be a whole number of at least 1, got 0"),
        ({"window": 2.0}, "cache.window .* got 2.0"),
        ({"window": True}, "cache.window"),
        ({"window": 2, "n_sink": -1}, "cache.n_sink must be a whole number of at least 0, got -1"),
        ({"window": 2, "spare": None}, "cache.spare"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes, message):
    with pytest.raises(ConfigError, match=message):
        Window(**sizes)
