"""The ring equals its definition: the same weights with a narrower mask, without a cache."""

import functools
import random

import parts
import pytest
import torch
from rings import LENGTH, PIECES, SIDES, SIZES, block, close, in_pieces, narrowed, rows, scheme, tokens
from torch.utils._python_dispatch import TorchDispatchMode

from minitf.blocks.fit import check_cache
from minitf.cache.dynamic import Dynamic
from minitf.cache.window import Window
from minitf.errors import ConfigError
from minitf.positions import NO_TOKEN, packed

# --- equality ---


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pieces_of_any_size_equal_the_mask_without_a_cache(sizes, side):
    window, n_sink, spare = sizes
    x, pos = tokens(), rows(side)
    for mask in ("causal", "strided")[: 1 + (window == 3)]:
        made = block(f"model/mask={mask}")
        wanted = narrowed(made, window, n_sink, x, pos)
        for pieces in PIECES:
            cache = Window(window, n_sink, exact=False, spare=spare)
            close(in_pieces(made, x, pos, cache, pieces), wanted, pos)
            assert cache.n_seen == LENGTH
            assert cache.plain == (side == "none")
            assert cache.n_bytes == 2 * 3 * 2 * (n_sink + window + spare) * 4 * 8  # keys and values of two heads


@torch.no_grad()
@pytest.mark.parametrize(("position", "side"), [("alibi", "left"), ("relative_bias", "none"), ("none", "right")])
def test_every_kind_of_position_is_the_tokens_own(position, side):
    made, x, pos = block(), tokens(), rows(side)
    wanted = narrowed(made, 3, 2, x, pos, position)
    for pieces in PIECES[:4]:
        close(in_pieces(made, x, pos, Window(3, 2, exact=False), pieces, position), wanted, pos)


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_keys_that_read_the_one_before_need_one_place_more(side):
    made, x, pos = block("model/attention/projection=smeared", "model/mask=sliding_window"), tokens(), rows(side)
    window = made.mask.window
    wanted = parts.attend(made, x, pos, scheme=scheme("rope"))
    for pieces in PIECES:
        cache = Window(window + 1)
        check_cache(cache, made, scheme("rope"), 0)
        close(in_pieces(made, x, pos, cache, pieces), wanted, pos)
    with pytest.raises(ConfigError, match="keeps: the last 3 tokens, one of them for the key before"):
        check_cache(Window(window), made, scheme("rope"), 0)


@torch.no_grad()
def test_a_row_that_stops_being_plain_goes_on():
    made, x = block(), tokens()
    pos = torch.arange(LENGTH).repeat(3, 1)
    pos[1, 9:] = NO_TOKEN
    for first in (2, 8):
        cache = Window(3, 2, exact=False, spare=1)
        head = in_pieces(made, x, None, cache, [first])
        tail = in_pieces(made, x, pos, cache, [3, 1] + [1] * (LENGTH - first - 4))
        close(torch.cat([head, tail], 1), narrowed(made, 3, 2, x, pos), pos)


@pytest.mark.parametrize("spare", [0, 2])
def test_plain_is_said_where_nothing_need_be_hidden(spare):
    cache, told = Window(3, 2, spare=spare), []
    for size in (1, 3, 1, 1, 2, 1):
        new = torch.zeros(1, 1, size, 1)
        pos = torch.arange(cache.n_seen, cache.n_seen + size)[None]
        told.append(cache.update(new, pos=pos, plain=True)[-1])
    one = spare == 0  # a spare place may hold a token that is out of the window
    assert told == [True, True, True, one, False, one]
    for size in (5, 6):
        cache.reset()
        plain = cache.update(torch.zeros(1, 1, size, 1), pos=torch.arange(size)[None], plain=True)[-1]
        assert plain == (size == 5)


def test_the_first_tokens_are_given_back_as_they_came():
    new, pos = torch.randn(2, 3, 9, 4), torch.arange(9)[None]
    for plain in (True, False):
        (found,), _, k_pos, _ = Window(3).update(new, pos=pos, plain=plain)
        assert found is new
        assert k_pos is pos


# --- select, crop, reset, state ---


def apart(made, x, pos, cache, position="rope"):
    """What comes after is given in single tokens and in a piece."""
    rest = LENGTH - cache.n_seen
    n = min(rest, 3)
    return in_pieces(made, x, pos, cache, [1] * n + [rest - n] * (rest > n), position)


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "given", "left", "right"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_after_a_crop_it_is_as_if_the_rest_had_never_come(sizes, side):
    """What is refused has lost a token that would be visible again; everything else is allowed, also twice."""
    window, n_sink, spare = sizes
    made, pos, draw = block(), rows(side), random.Random(0)
    room = window + spare + (n_sink if side == "none" else 0)
    allowed = refused = 0
    for _ in range(20):
        x, cache, highest, lost = tokens(), Window(window, n_sink, exact=False, spare=spare), 0, False
        for _ in range(2):
            other = torch.cat([x[:, : cache.n_seen], tokens()], 1)
            size = draw.randint(1, LENGTH - cache.n_seen)
            in_pieces(made, other, pos, cache, draw.choice([[size], [1] * size]))
            highest = max(highest, cache.n_seen)
            n = max(1, cache.n_seen - draw.randint(1, spare + 1) - (draw.random() < 0.3))
            lost = highest > room and highest - n > spare + 1
            if lost:
                with pytest.raises(
                    ConfigError, match=rf"crop\({n}\).*take back {spare + 1}: .*spare={highest - n - 1} "
                ):
                    cache.crop(n)
                break
            cache.crop(n)
            assert cache.n_seen == n
            x[:, :n] = other[:, :n]
        if not lost:
            n = cache.n_seen
            close(apart(made, x, pos, cache), narrowed(made, window, n_sink, x, pos)[:, n:], part(pos, n))
        allowed, refused = allowed + (not lost), refused + lost
    assert allowed >= 3
    assert refused >= 3 or window == 40


def part(pos, n):
    return None if pos is None else pos[:, n:]


@torch.no_grad()
def test_crop_ends_where_another_document_begins():
    made, x, pos = block(), tokens(), packed([5, 12], LENGTH)[None]
    wanted = narrowed(made, 4, 1, x, pos)
    for n in (7, 5, 4):
        cache = Window(4, 1, exact=False, spare=9)
        in_pieces(made, x, pos, cache, [9])
        if n > 5:
            cache.crop(n)
            close(apart(made, x, pos, cache), wanted[:, n:], pos[:, n:])
        else:
            with pytest.raises(ConfigError, match="beginning of a document"):
                cache.crop(n)


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "packed"])
@pytest.mark.parametrize("renumber", [False, True])
def test_rows_are_selected_and_states_go_to_another_cache(side, renumber):
    made, x, pos, order = block(), tokens(), rows(side), torch.tensor([2, 0, 0, 1])

    def new():
        return Window(3, 2, renumber, exact=False, spare=1)

    for first in (2, 10):
        cache, saved = new(), new()
        in_pieces(made, x, pos, cache, [1] * first)
        state = cache.state_dict()
        cache.select(order)
        saved.load_state_dict(state)
        ones = [1] * (LENGTH - first)
        wanted = in_pieces(made, x, pos, saved, ones)
        got = in_pieces(made, x[order], pos if pos is None else pos[order], cache, ones)
        close(got, wanted[order], None if pos is None else pos[order, first:])
        assert (saved.n_seen, saved.n_held, saved.plain) == (LENGTH, cache.n_held, cache.plain)
        again = new()
        again.load_state_dict(state)  # what was taken has not changed since
        assert torch.equal(in_pieces(made, x, pos, again, ones), wanted)
        again.load_state_dict(new().state_dict())
        assert (again.n_seen, again.plain) == (0, True)
        assert torch.equal(in_pieces(made, x, pos, again, [1] * LENGTH)[:, first:], wanted)
    with pytest.raises(ConfigError, match="take the same cache"):
        Window(4, 1, renumber, spare=1).load_state_dict(state)
    new().select(order)


@torch.no_grad()
def test_a_reset_cache_is_as_new_and_keeps_its_memory():
    made, cache = block(), Window(3, 2, exact=False)
    for side in ("none", "left", "none", "packed", "none"):
        x, pos = tokens(), rows(side)
        cache.reset()
        assert (cache.n_seen, cache.n_held, cache.plain) == (0, 0, True)
        with pytest.raises(ConfigError, match="empty"):
            cache.read()
        close(in_pieces(made, x, pos, cache, PIECES[3]), narrowed(made, 3, 2, x, pos), pos)
    cache.crop(0)
    assert (cache.n_seen, cache.plain) == (0, True)
    for n in (-1, 1):
        with pytest.raises(ConfigError, match="holds 0 tokens"):
            cache.crop(n)


def test_what_it_tells_of_itself():
    cache, new = Window(3, 2, spare=1), torch.zeros(3, 2, 1, 4)
    assert (cache.n_seen, cache.n_held, cache.n_bytes, cache.chunk_limit) == (0, 0, 0, None)
    places = set()
    for i in range(9):
        cache.update(new, pos=torch.tensor([[i]]), plain=True)
        places.add(tuple(b.data_ptr() for b in cache._buffers))
        assert (cache.n_seen, cache.n_held, cache.n_bytes) == (i + 1, min(i + 1, 5), 3 * 2 * 6 * 4 * 4)
    assert len(places) == 1
    (held,), pos = cache.read()
    assert held.shape == (3, 2, 6, 4)
    assert pos.tolist() == [[0, 1, 6, 7, 8, 5]]
    assert isinstance(cache.for_source(), Dynamic)


def test_other_entries_are_refused_and_leave_it_alone():
    cache = Window(3)
    cache.update(torch.zeros(2, 2, 1, 4), pos=torch.tensor([[0]]), plain=True)
    for shape, message in (((3, 2, 1, 4), "holds 2 rows, got 3"), ((2, 2, 1, 5), "entries")):
        with pytest.raises(ConfigError, match=message):
            cache.update(torch.zeros(shape), pos=torch.tensor([[1]]), plain=False)
    assert (cache.n_seen, cache.plain) == (1, True)


@pytest.mark.parametrize("side", ["none", "left"])
def test_a_layer_without_attention_counts_only(side):
    cache, pos = Window(3, 2), rows(side)
    for i, size in enumerate((4, 1, 9, 1)):
        first = cache.n_seen
        places = torch.arange(first, first + size)[None] if pos is None else pos[:, first : first + size]
        entries, *_ = cache.update(pos=places, plain=pos is None)
        assert entries == ()
        assert cache.n_seen == first + size
        assert cache.n_bytes == 0, i
    assert cache.read()[0] == ()


@pytest.mark.parametrize("side", ["none", "left"])
def test_entries_of_any_shape_and_kind_are_kept(side):
    new = torch.randint(-100, 100, (3, 11, 2), dtype=torch.int8)
    pos = torch.arange(11)[None] if side == "none" else parts.padded([11, 6, 1], side)
    for sizes in ((11,), (6, 5), (1,) * 11):
        cache, start = Window(3, 1), 0
        for size in sizes:
            piece = slice(start, start := start + size)
            cache.update(new[:, piece], new[:, None, piece], pos=pos[:, piece], plain=side == "none")
        (flat, deep), k_pos = cache.read()
        assert torch.equal(flat, deep[:, 0])
        for row, (held, places) in enumerate(zip(flat, k_pos.expand(3, -1), strict=True)):
            own = pos.expand(3, -1)[row]
            wanted = {0, *own.tolist()[-3:]} - {NO_TOKEN}
            assert {int(p) for p in places if p >= 0} == wanted
            for token, place in zip(held, places, strict=True):
                assert place < 0 or torch.equal(token, new[row, own == place][0])


@torch.no_grad()
def test_an_encoder_decoder_keeps_its_source_whole():
    model = parts.model("encdec_tiny", "model/mask=sliding_window", scale=8).double()
    src, ids = torch.randint(65, (2, 9)), torch.randint(65, (2, 12))
    memory, caches = model.encode(src), model.new_caches(lambda: Window(3))
    found = [model.hidden(ids[:, a:b], None, memory, None, caches) for a, b in ((0, 5), (5, 6), (6, 7), (7, 12))]
    close(torch.cat(found, 1), model.hidden(ids, None, memory), None)
    assert [cache.n_held for cache in caches] == [3, 3, 9, 9]


@torch.no_grad()
def test_no_tensor_is_asked_for_its_value():
    """On a device that would be waited for, at every token."""

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert func.overloadpacket.__name__ not in {"_local_scalar_dense", "nonzero", "masked_select"}
            return func(*args, **(kwargs or {}))

    made, x = block(), tokens()
    for side in SIDES:
        for renumber in (False, True):
            pos, cache = rows(side), Window(4, 2, renumber, exact=False, spare=1)
            with Watch():
                in_pieces(made, x, pos, cache, [4, 1, 1, 1, 1 if renumber else 6, 1])


# --- a long text ---


@pytest.mark.slow
@torch.no_grad()
def test_twenty_thousand_tokens_cost_the_same_at_the_end():
    import statistics
    import time

    model = parts.model("gpt_tiny", "model/position=rope", "model.n_layers=1")
    make = functools.partial(Window, 256, 4, exact=False)
    old, young = model.new_caches(make), model.new_caches(make)
    ids = torch.randint(65, (1, 20_000))
    seconds = {id(old): [], id(young): []}

    def step(caches):
        n = caches[0].n_seen
        start = time.process_time()
        model.step(ids[:, n : n + 1], None, caches)
        seconds[id(caches)].append(time.process_time() - start)

    while young[0].n_seen < 260:
        step(young)
    n_bytes, places = young[0].n_bytes, None
    while old[0].n_seen < 19_000:
        step(old)
        now = (old[0].n_bytes, old[0].n_held, *(b.data_ptr() for b in old[0]._buffers))
        places = places or (now if old[0].n_seen == 260 else None)
        assert places in (None, now)
    # the first 1,000 tokens after the ring is full and the last of 20,000, in turn, so that both meet the same machine
    for _ in range(1000):
        step(young)
        step(old)
    assert old[0].n_seen == 20_000
    assert old[0].n_bytes == n_bytes
    first, last = (statistics.median(seconds[id(caches)][-1000:]) for caches in (young, old))
    assert abs(last / first - 1) < 0.1
