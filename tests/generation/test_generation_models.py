"""The loop with models of every architecture, and what it asks of caches, taps and devices."""

import itertools

import parts
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minitf.cache.dynamic import Dynamic
from minitf.cache.static import Static
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.rows import Rows
from minitf.generation.rules import MinLength, NoRepeatNgram, RepetitionPenalty
from minitf.generation.sampling import Greedy, Sample
from minitf.tap import Tap, Tappable

SAMPLER = Sample(1.0, 30, 0.95, 0.02)
LENGTHS, SOURCES = [5, 1, 3], [4, 9, 6]
DECODERS, READERS = ["gpt_tiny", "llama_tiny", "mistral_tiny"], ["encdec_tiny", "t5_tiny"]
RECURRENT = ["gru_none", "bahdanau", "luong"]


def of(preset, *overrides):
    """A model that does not repeat itself: with tied embeddings an untrained one only echoes."""
    scale = 3 if preset in RECURRENT else 5
    return parts.model(preset, "model.tie_embeddings=false", *overrides, scale=scale)


def rope(*overrides):
    return of("gpt_tiny", "model/position=rope", *overrides)


def text(model, ids, n=9, **how):
    """(B,n) new tokens."""
    how = {"sampler": SAMPLER, "max_new_tokens": n, **how}
    return torch.stack([s.ids for s in generate(model, ids, **how)], 1)


def batch():
    return torch.randint(65, (3, 5)), parts.padded(LENGTHS, "left")


def source(model, preset):
    """What the three rows read, padded; and each by itself."""
    if preset in DECODERS:
        return {}, [{}] * 3
    src, src_pos = torch.randint(65, (3, 9)), parts.padded(SOURCES, "right")
    together = {"memory": model.encode(src, src_pos), "memory_pos": src_pos}
    return together, [{"memory": model.encode(src[i : i + 1, :n])} for i, n in enumerate(SOURCES)]


@torch.no_grad()
@pytest.mark.parametrize("preset", DECODERS + READERS + RECURRENT)
def test_a_row_is_as_alone_and_a_cache_changes_nothing(preset):
    model, (ids, pos) = of(preset), batch()
    together, each = source(model, preset)
    alone = [
        text(model, ids[i : i + 1, 5 - n :], seeds=[i], **own)[0]
        for i, (n, own) in enumerate(zip(LENGTHS, each, strict=True))
    ]
    assert torch.stack(alone).unique().numel() > 5
    assert torch.equal(text(model, ids, pos=pos, **together), torch.stack(alone))
    turned = {key: value.flip(0) for key, value in together.items()}
    others = text(model, ids.flip(0), pos=pos.flip(0), seeds=[2, 1, 0], **turned)
    assert torch.equal(others.flip(0), torch.stack(alone))
    if preset in RECURRENT:
        return
    for make, chunk in ((Dynamic, None), (Static, 2), (Dynamic, 1), (Static, 3), (Dynamic, 7)):
        caches = model.new_caches(make)
        got = text(model, ids, pos=pos, caches=caches, prefill_chunk=chunk, **together)
        assert torch.equal(got, torch.stack(alone))


class Small(Dynamic):
    """Takes in three tokens at a time and must be told how many come."""

    chunk_limit = 3
    told = None

    def reserve(self, n):
        assert self.n_seen == 0
        self.told = n

    def update(self, *entries, pos, plain):
        assert pos.size(1) <= 3, "more than chunk_limit"
        assert self.n_seen + pos.size(1) <= self.told, "more than was reserved"
        return super().update(*entries, pos=pos, plain=plain)


@pytest.mark.parametrize("chunk", [None, 2, 5])
def test_a_prompt_is_read_in_pieces_that_a_cache_can_take(chunk):
    model, ids = rope(), torch.randint(65, (2, 8))
    caches = model.new_caches(Small)
    assert torch.equal(text(model, ids, caches=caches, prefill_chunk=chunk), text(model, ids))
    assert [(cache.told, cache.n_seen) for cache in caches] == [(16, 16)] * 2  # the last token is never read


def test_what_is_reserved_is_what_comes_at_most():
    model, ids = of("gpt_tiny", "model/position=learned", "model.max_len=8"), torch.randint(65, (2, 5))
    for n, told in ((1, 5), (3, 7), (4, 8), (30, 8)):  # a window ends where the table does
        caches = model.new_caches(Small)
        assert torch.equal(text(model, ids, n, caches=caches), text(model, ids, n))
        assert [cache.told for cache in caches] == [told] * 2
    padded = model.new_caches(Small)
    text(model, *[ids[:, :4]], 3, pos=parts.padded([4, 2], "right"), caches=padded)
    assert padded[0].told == 6
    with pytest.raises(ConfigError, match="13 tokens do not fit a static cache of 12 places"):
        generate(rope(), ids, sampler=Greedy(), max_new_tokens=9, caches=rope().new_caches(lambda: Static(12)))


def test_rows_grow_as_long_as_they_like():
    ids, new = torch.randint(65, (2, 3)), torch.randint(65, (2, 400))
    rows = Rows(ids, None, None)
    for token in new.T:
        rows.append(token)
    assert torch.equal(rows.history().ids, torch.cat([ids, new], 1))
    assert torch.equal(rows.columns(402, 403)[0], new[:, -1:])
    assert (rows.history().lengths, rows.history().prompt_lengths) == ([403, 403], [3, 3])


# --- caches that hold the beginning ---


@torch.no_grad()
@pytest.mark.parametrize("preset", ["gpt_tiny", "mistral_tiny", "encdec_tiny"])
def test_a_beginning_that_was_read_before_is_not_read_again(preset):
    model, ids = of(preset), torch.randint(65, (3, 8))
    own = source(model, preset)[0]
    seen = []
    model.embedding.register_forward_hook(lambda *call: seen.append(call[1][0].size(1)))
    expected = text(model, ids, **own)
    for n_read, chunk in ((1, None), (5, 2), (7, None)):
        caches = model.new_caches(Dynamic)
        model.step(ids[:, :n_read], None, caches, **own)
        seen.clear()
        got = text(model, ids, caches=caches, n_read=n_read, prefill_chunk=chunk, **own)
        assert torch.equal(got, expected)
        assert sum(seen) == 8 - n_read + 8


@torch.no_grad()
@pytest.mark.parametrize("position", ["rope", "learned"])
def test_rows_that_begin_alike_go_on_with_their_own_prompts(position):
    """The beginning is read once as one row; what follows has other lengths; the table is outgrown, too."""
    model = of("gpt_tiny", f"model/position={position}", "model.max_len=8")
    start, rest = torch.randint(65, (1, 3)), [torch.randint(65, (n,)) for n in (4, 1, 2)]
    ids, pos = torch.full((3, 7), 9), torch.full((3, 7), -1)
    for row, own in enumerate(rest):
        n = 3 + len(own)
        ids[row, :n], pos[row, :n] = torch.cat([start[0], own]), torch.arange(n)
    caches = model.new_caches(Dynamic)
    model.step(start, None, caches)
    for cache in caches:
        cache.select(torch.zeros(3).long())
    got = text(model, ids, 14, pos=pos, caches=caches, n_read=3)
    for row, own in enumerate(rest):
        assert torch.equal(got[row], text(model, torch.cat([start[0], own])[None], 14, seeds=[row])[0])


@torch.no_grad()
def test_rows_of_one_length_whose_beginnings_were_padded():
    model, first = rope(), parts.padded([4, 2], "left")
    ids, pos = torch.randint(65, (2, 8)), torch.full((2, 8), -1)
    pos[0, :4], pos[0, 4:6] = torch.arange(4), torch.arange(4, 6)
    pos[1, 2:4], pos[1, 4:] = torch.arange(2), torch.arange(2, 6)
    caches = model.new_caches(Dynamic)
    model.step(ids[:, :4], first, caches)
    got = text(model, ids, pos=pos, caches=caches, n_read=4)
    for row in range(2):
        assert torch.equal(got[row], text(model, ids[row : row + 1, pos[row] >= 0], seeds=[row])[0])
    # nothing of the text is padded, but the caches were told positions
    caches = model.new_caches(Dynamic)
    model.step(ids[:, :4], torch.arange(4)[None], caches)
    assert torch.equal(text(model, ids, caches=caches, n_read=4), text(model, ids))


@pytest.mark.parametrize(
    ("read", "how", "message"),
    [
        (3, {"n_read": 2}, r"seen \[3\] tokens, n_read says 2"),
        (0, {"n_read": 2}, r"seen \[0\] tokens, n_read says 2"),
        (3, {"n_read": 6}, "between 0 and 5"),
        (3, {"n_read": -1}, "between 0 and 5"),
        (3, {"n_read": 3, "caches": None}, "there are none"),
        (3, {"n_read": 3, "pos": parts.padded([6, 3], "right")}, "needs a token after the 3"),
        (3, {}, "hold 3 tokens already"),
    ],
)
def test_caches_that_hold_something_else_are_refused(read, how, message):
    model, ids = rope(), torch.randint(65, (2, 6))
    caches = model.new_caches(Dynamic)
    if read:
        model.step(ids[:, :read], None, caches)
    with pytest.raises(ConfigError, match=message):
        generate(model, ids, sampler=Greedy(), max_new_tokens=2, **{"caches": caches, **how})


# --- weights ---


@torch.no_grad()
@pytest.mark.parametrize(
    ("preset", "cached"),
    [("gpt_tiny", False), ("gpt_tiny", True), ("encdec_tiny", False), ("encdec_tiny", True), ("luong", False)],
)
def test_weights_are_those_that_chose_the_token_and_change_no_bit(preset, cached):
    model, (ids, pos) = of(preset), batch()
    own = source(model, preset)[0]
    names = [name for name in Tap.names(model) if name.endswith("attention.weights") and "encoder" not in name[:8]]
    how = {"sampler": SAMPLER, "max_new_tokens": 6, "pos": pos, **own}

    def steps(**more):
        caches = model.new_caches(Dynamic) if cached else None
        return list(generate(model, ids, caches=caches, prefill_chunk=2, **how, **more))

    plain, read = steps(), steps(weights=names)
    for a, b in zip(plain, read, strict=True):
        assert torch.equal(a.ids, b.ids)
        assert torch.equal(a.logprobs, b.logprobs)
        assert not a.weights
        assert set(b.weights) == set(names)
    assert all(m.tap is None for m in model.modules() if isinstance(m, Tappable))
    text_of_row = torch.cat([ids, torch.stack([s.ids for s in read], 1)], 1)
    full_pos = torch.where(pos >= 0, pos, -1)
    full_pos = torch.cat([full_pos, pos[:, -1:] + torch.arange(1, 7)], 1)
    with Tap(model, at=names) as tap:
        model.step(text_of_row, full_pos, **own)
    for n, step in enumerate(read):
        for name in names:
            whole = tap[name][:, :, 4 + n : 5 + n]
            assert step.weights[name].shape[2] == 1
            torch.testing.assert_close(step.weights[name], whole[..., : step.weights[name].size(-1)], atol=1e-5, rtol=0)


def test_names_of_weights_are_looked_up_at_once():
    model, ids = rope(), torch.randint(65, (1, 4))
    step = next(generate(model, ids, sampler=Greedy(), max_new_tokens=1, weights="layers.*.attention.weights"))
    assert {name: w.shape for name, w in step.weights.items()} == {
        f"layers.{i}.attention.weights": (1, 4, 1, 4) for i in range(2)
    }
    with pytest.raises(ConfigError, match=r"no activation is called 'layers\.9\.attention\.weights'"):
        generate(model, ids, sampler=Greedy(), max_new_tokens=1, weights=["layers.9.attention.weights"])


# --- no waiting for the device ---


class Waits(TorchDispatchMode):
    """Names what would make a device wait: a value is asked for, or a tensor comes from the host."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "lift_fresh", "masked_select", "unique"):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
@pytest.mark.parametrize("make", [Dynamic, Static])
@pytest.mark.parametrize("sampler", [Greedy(), SAMPLER])
@pytest.mark.parametrize("rules", [(), (RepetitionPenalty(1.2), NoRepeatNgram(3), MinLength(99, [3]))])
def test_no_step_waits_for_the_device(make, sampler, rules):
    model, (ids, pos) = rope(), batch()
    for given in (None, pos):
        how = {"sampler": sampler, "max_new_tokens": 20, "rules": rules, "caches": model.new_caches(make)}
        steps = generate(model, ids, pos=given, **how)
        next(steps)
        with Waits() as waits:
            rest = list(itertools.islice(steps, 19))
        assert not waits.found
        assert len(rest) == 19


def test_the_watch_sees_what_waits():
    steps = generate(rope(), torch.randint(65, (2, 3)), sampler=Greedy(), max_new_tokens=3, stop=[3])
    with Waits() as waits:
        list(steps)
        torch.tensor([1, 2])
    assert {"is_nonzero", "lift_fresh"} <= set(waits.found) or "_local_scalar_dense" in waits.found
