"""The flagship test: with any cache, in any pieces, in any batch, a model says what one full pass without a cache says.

Every pair of choices and a sample by default, a large sample on demand, and the full product of attention, position,
mask, cache, pieces and batch.
"""

import itertools
import os
import random
import time

import parts
import pytest
import torch
from cover import Space, cover
from equality import AXES, SPACE, Case, excluded, full
from equality_laws import (
    LAWS,
    cropped_was_never_seen,
    pieces_equal_one_pass,
    reset_is_new,
    selected_rows_are_those_rows,
    state_goes_on_elsewhere,
)
from naive_caches import Forgetful
from refused import REFUSED_CACHES, refused
from small_models import build_model

from minitf.cache.dynamic import Dynamic
from minitf.cache.static import Static
from minitf.errors import ConfigError

FULL = "MINITF_FULL_MATRIX" in os.environ
SHARDS = parts.product(attention=AXES["attention"], cache=AXES["cache"]) if FULL else [{}]
MOST_FAILURES = 20


@torch.no_grad()
def check(pairs, record_property):
    """Laws in cells; one message for all that fail."""
    failures, cells, start = [], 0, time.perf_counter()
    for law, cell in pairs:
        cells += law is pieces_equal_one_pass
        try:
            law(Case(cell))
        except Exception as error:
            failures.append(f"{law.__name__} in {parts.name(cell)}\n    {type(error).__name__}: {error}")
            if len(failures) == MOST_FAILURES:
                break
    record_property("cache cells", cells)
    found = "\n".join(failures)
    assert not failures, f"{len(failures)} failures in {cells} cells, {time.perf_counter() - start:.0f} s:\n{found}"


def numbered_pairs():
    """Cells that hold every pair, each with one of the laws that say more than equality, in turn."""
    others = itertools.cycle(law for law in LAWS if law is not pieces_equal_one_pass)
    return [
        pytest.param(cell, law, id=parts.name(cell)) for cell, law in zip(cover(AXES, excluded), others, strict=False)
    ]


@pytest.mark.parametrize(("cell", "law"), numbered_pairs())
def test_every_pair_of_choices_equals_one_full_pass(cell, law, record_property):
    check([(pieces_equal_one_pass, cell), (law, cell)], record_property)


@pytest.mark.parametrize("shard", parts.some_by_default(range(4), 2))
def test_a_sample_keeps_the_laws(shard, record_property):
    check(itertools.product(LAWS, SPACE.sample(2, seed=shard)), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(4, 20))
def test_a_large_sample_keeps_the_laws(shard, record_property):
    check(((law, cell) for cell in SPACE.sample(50, seed=shard) for law in LAWS), record_property)


@pytest.mark.slow
@pytest.mark.skipif(
    not FULL,
    reason="an hour of CPU: MINITF_FULL_MATRIX=1 pytest tests/cache/test_equality.py -m slow -k full_product",
)
@pytest.mark.parametrize("shard", SHARDS, ids=parts.name)
def test_the_full_product_equals_one_full_pass(shard, record_property):
    check(of_product(shard), record_property)


def of_product(shard):
    """Equality in every cell, and the other laws in one cell of every model."""
    for drawn, cells in full(**shard):
        yield from ((pieces_equal_one_pass, cell) for cell in cells)
        yield from ((law, drawn) for law in LAWS if law is not pieces_equal_one_pass)


# --- what is refused ---


def test_the_cover_holds_every_pair_that_is_not_refused():
    held = {pair for cell in cover(AXES, excluded) for pair in itertools.combinations(cell.items(), 2)}
    choices = [(axis, value) for axis in AXES for value in AXES[axis]]
    every = {(a, b) for a, b in itertools.combinations(choices, 2) if a[0] != b[0]}
    left = {(a, b) for a, b in every - held if not refused(a, b)}
    # refused in some masks only, see `excluded`; the window that is one wider is in the cover
    assert left <= {(("cache", "window"), ("projection", "smeared"))}


EVERY = {**AXES, "mask": parts.options("model/mask")}
CHOICES = [(axis, value) for axis in EVERY for value in EVERY[axis]]
LISTED = [
    pytest.param(a, b, refusal, id=f"{a[0]}={a[1]}-{b[0]}={b[1]}")
    for refusal in REFUSED_CACHES
    for a, b in itertools.combinations(CHOICES, 2)
    if refusal.holds(a, b)
]


@torch.no_grad()
@pytest.mark.parametrize(("a", "b", "refusal"), parts.some_by_default(LISTED, 3))
def test_every_listed_pair_is_refused_by_name(a, b, refusal):
    space = Space({**EVERY, "model": ["decoder"]}, lambda x, y: excluded(x, y) and {x, y} != {a, b})
    rng = random.Random(0)
    cell = next(filter(None, (space.complete(dict([a, b]), rng) for _ in range(20))))
    model = build_model(cell)
    with pytest.raises(ConfigError, match=refusal.message):
        model(torch.zeros(1, 2, dtype=torch.int64), caches=model.new_caches(parts.factory("cache", cell["cache"])))


@pytest.mark.parametrize("refusal", REFUSED_CACHES, ids=lambda refusal: refusal.reason)
def test_every_refusal_is_about_choices_that_exist(refusal):
    for axis, *ones in (refusal.first, refusal.second):
        for one in ones:
            alone = refusal._replace(first=(axis, one), second=("itself", "0"))
            assert any(alone.holds(choice, ("itself", "0")) for choice in CHOICES), f"no {axis}={one}"


# --- the laws notice ---


class WithoutPadding(Dynamic):
    def update(self, *entries, pos, plain):
        return super().update(*entries, pos=pos.clamp_min(0), plain=plain)


class AlwaysPlain(Dynamic):
    def update(self, *entries, pos, plain):
        return *super().update(*entries, pos=pos, plain=plain)[:3], True


class CountsColumns(Dynamic):
    def update(self, *entries, pos, plain):
        where = torch.arange(self.n_seen, self.n_seen + pos.size(1))
        return super().update(*entries, pos=torch.where(pos >= 0, where, -1), plain=plain)


class TilesHeads(Dynamic):
    def update(self, *entries, pos, plain):
        entries, *rest = super().update(*entries, pos=pos, plain=plain)
        return tuple(e.repeat(1, 2, 1, 1) for e in entries), *rest


class CountsBytesByFormula(Static):
    @property
    def n_bytes(self):
        return sum(b[..., : self.n_seen, :].numel() * b.element_size() for b in self._buffers)


class CropsTheFront(Dynamic):
    def crop(self, n):
        pos = self._pos
        super().crop(n)
        self._pos = pos[:, -n:]


class StaleSlot(Static):
    stale = False

    def crop(self, n):
        self.stale = n < self.n_seen
        super().crop(n)

    def update(self, *entries, pos, plain):
        slot, old = self.n_seen, [b.clone() for b in self._buffers]
        found = super().update(*entries, pos=pos, plain=plain)
        if self.stale and slot:
            for buffer, before in zip(self._buffers, old, strict=True):
                buffer[..., slot, :] = before[..., slot, :]
        self.stale = False
        return found


class SelectsEntriesAlone(Dynamic):
    def select(self, rows):
        pos = self._pos
        super().select(rows)
        self._pos = pos


class SortsRows(Dynamic):
    def select(self, rows):
        super().select(rows.sort().values)


class StaysPadded(Dynamic):
    def reset(self):
        plain = getattr(self, "plain", True)
        super().reset()
        self.plain = plain


class KeepsTheBatch(Dynamic):
    def reset(self):
        self._pos = None if getattr(self, "_pos", None) is None else self._pos[:, :0]
        self._entries = tuple(e[..., :0, :] for e in getattr(self, "_entries", ()))
        self.plain = True


class LoadsWithoutPadding(Dynamic):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "pos": state["pos"].clamp_min(0)})


class SharesState(Dynamic):
    def update(self, *entries, pos, plain):
        old = self._entries
        found = super().update(*entries, pos=pos, plain=plain)
        for entry in old:  # its own no more; as a ring does that gives the place of an old token away
            entry.fill_(1e3)
        return found


BASE = {
    **{"attention": "gqa", "position": "rope+scaling=none", "mask": "causal", "cache": "dynamic", "pieces": "crossing"},
    **{"batch": "right", "score": "scaled_dot", "normalize": "softmax", "projection": "free", "qk_norm": "none"},
    **{"sizes": "d_model/H", "fast": "sdpa", "layers": "same", "layer": "pre_norm", "ffn": "gelu", "model": "decoder"},
    **{"dtype": torch.float64},
}


@torch.no_grad()
@pytest.mark.parametrize("model", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("batch", ["left+6", "right", "equal"])
def test_the_slow_definition_of_forgetting_is_a_mask(batch, model):
    pieces_equal_one_pass(Case({**BASE, "batch": batch, "model": model}, lambda: Forgetful(4, 2)))
    with pytest.raises(AssertionError, match="pieces differs"):
        pieces_equal_one_pass(Case({**BASE, "batch": batch, "model": model}, lambda: Forgetful(3, 2, keeps=(4, 2))))


@torch.no_grad()
@pytest.mark.parametrize(
    ("law", "make", "batch"),
    [
        (pieces_equal_one_pass, WithoutPadding, "left"),
        (pieces_equal_one_pass, AlwaysPlain, "left"),
        (pieces_equal_one_pass, CountsColumns, "right"),
        (pieces_equal_one_pass, TilesHeads, "equal"),
        (pieces_equal_one_pass, CountsBytesByFormula, "equal"),
        (cropped_was_never_seen, CropsTheFront, "left"),
        (cropped_was_never_seen, StaleSlot, "equal"),
        (selected_rows_are_those_rows, SelectsEntriesAlone, "right"),
        (selected_rows_are_those_rows, SortsRows, "equal"),
        (reset_is_new, StaysPadded, "right"),
        (reset_is_new, KeepsTheBatch, "equal"),
        (state_goes_on_elsewhere, LoadsWithoutPadding, "left"),
        (state_goes_on_elsewhere, SharesState, "equal"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_law_notices_its_breach(law, make, batch):
    sound = make.__base__ if make.__base__ is Dynamic else lambda: Static(64)
    law(Case({**BASE, "batch": batch}, sound))
    with pytest.raises((AssertionError, ConfigError)):
        law(Case({**BASE, "batch": batch}, make if make.__base__ is Dynamic else lambda: make(64)))
