"""The laws that no cell of the cache matrix may break."""

import io

import torch
from equality import INT8, Case
from torch import Tensor

from minitf.cache import KVCache
from minitf.errors import ConfigError


def pieces_equal_one_pass(case: Case) -> None:
    """In pieces of any size, in any batch: what each row says when it is read alone, at once and without a cache."""
    caches = case.subject.caches()
    ours = case.go(caches, 0, case.n, watch=lambda n: counts_are_true(case, caches, n))
    case.close(ours, case.expected(), "pieces")
    if case.subject.rounds:
        case.close(ours, case.expected(rounded=False), "rounded to 8 bits", share=INT8)


def counts_are_true(case: Case, caches: list[KVCache], n: int) -> None:
    """Tokens seen and held, and bytes: of the tensors that are there."""
    for cache in case.subject.own(caches):
        assert cache.n_seen == n, f"{n} tokens came, n_seen is {cache.n_seen}"
        held = n if case.keeps is None else min(n, sum(case.keeps))
        assert cache.n_held == held, f"n_held is {cache.n_held} of {n}, not {held}"
        found = sum(storage.nbytes() for storage in storages(cache).values())
        assert cache.n_bytes == found, f"n_bytes is {cache.n_bytes}, the tensors take {found}"


def storages(thing: object) -> dict:
    """The memory of every tensor that an object holds, anywhere inside; positions, which are int64, left out."""
    if isinstance(thing, Tensor):
        storage = thing.untyped_storage()
        return {} if thing.dtype == torch.int64 else {storage.data_ptr(): storage}
    inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else None
    if inside is None:
        inside = vars(thing).values() if isinstance(thing, KVCache) else ()
    return {key: storage for one in inside for key, storage in storages(one).items()}


def cropped_was_never_seen(case: Case) -> None:
    """Going on after a crop; a cache that forgets may refuse to go back."""
    caches, expected = case.subject.caches(), case.expected()
    case.go(caches, 0, case.cut)
    own = case.subject.own(caches)
    for cache in own:
        cache.crop(case.cut)  # nothing to forget
    case.astray(caches, 2)
    try:
        for cache in own:
            cache.crop(case.cut)
    except ConfigError:
        assert case.keeps is not None, "refused to go back"
        return
    counts_are_true(case, caches, case.cut)
    case.close(case.go(caches, case.cut, case.n), expected[:, case.cut :], "after a crop")


def selected_rows_are_those_rows(case: Case) -> None:
    """In another order, and more than once."""
    caches, rows = case.subject.caches(), [2, 0, 2, 1]
    case.go(caches, 0, case.cut)
    for cache in caches:
        cache.select(torch.tensor(rows))
    ours = case.go(caches, case.cut, case.n, rows)
    case.close(ours, case.expected()[rows, case.cut :], "selected rows")
    counts_are_true(case, caches, case.n)


def reset_is_new(case: Case) -> None:
    """Another batch after the first one, with fewer rows; from the start again after a crop to nothing."""
    caches, expected = case.subject.caches(), case.expected()
    case.go(caches, 0, case.n)
    for cache in caches:
        cache.reset()
        assert (cache.n_seen, cache.n_held, cache.plain) == (0, 0, True)
        cache.reserve(case.n)
    case.close(case.go(caches, 0, case.cut, [1]), expected[[1], : case.cut], "after a reset")
    for cache in caches:
        cache.crop(0)
    case.close(case.go(caches, 0, case.n), expected, "after a crop to nothing")


def state_goes_on_elsewhere(case: Case) -> None:
    """Through a file; what was taken does not change when the cache it came from goes on."""
    first, second = case.subject.caches(), case.subject.caches()
    case.go(first, 0, case.cut)
    file = io.BytesIO()
    states = [cache.state_dict() for cache in first]
    torch.save(states, file)
    file.seek(0)
    case.go(first, case.cut, case.n)
    for state in (states, torch.load(file, weights_only=True)):
        for cache, one in zip(second, state, strict=True):
            cache.reset()
            cache.reserve(case.n)
            cache.load_state_dict(one)
        counts_are_true(case, second, case.cut)
        ours = case.go(second, case.cut, case.n)
        case.close(ours, case.expected()[:, case.cut :], "from a state")


LAWS = (
    pieces_equal_one_pass,
    cropped_was_never_seen,
    selected_rows_are_those_rows,
    reset_is_new,
    state_goes_on_elsewhere,
)
