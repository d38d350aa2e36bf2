"""Positions that count inside the cache, against the definition of StreamingLLM."""

import parts
import pytest
import torch
from rings import LENGTH, SIDES, SIZES, block, close, in_pieces, narrowed, rows, tokens

from minitf.cache import KVCache
from minitf.cache.window import Window
from minitf.errors import ConfigError
from minitf.positions import NO_TOKEN


class Streaming(KVCache):
    """The definition of StreamingLLM: every raw entry is kept, and for each token chosen and numbered anew."""

    raw_keys, exact = True, False

    def __init__(self, window, n_sink):
        self.window, self.n_sink, self.keeps = window, n_sink, (window, n_sink)
        self.all, self.n_seen = [], 0

    def update(self, *entries, pos, plain):
        assert pos.size(1) == 1
        self.all.append((entries, pos.expand(entries[0].size(0), 1)))
        self.n_seen += 1
        n_rows = entries[0].size(0)
        q_pos, k_pos = torch.full((n_rows, 1), NO_TOKEN), torch.full((n_rows, self.n_seen), NO_TOKEN)
        for row in range(n_rows):
            now = int(self.all[-1][1][row])
            real = [i for i, (_, p) in enumerate(self.all) if p[row] >= 0 and int(p[row]) >> 32 == now >> 32]
            kept = [i for n, i in enumerate(real) if n < self.n_sink or n >= len(real) - self.window]
            for n, i in enumerate(kept):
                k_pos[row, i] = n
            if now >= 0:
                q_pos[row] = len(kept) - 1
        return tuple(torch.cat(e, 2) for e in zip(*(e for e, _ in self.all), strict=True)), q_pos, k_pos, False


@torch.no_grad()
@pytest.mark.parametrize(
    ("position", "side"), [*(("rope", side) for side in SIDES), ("alibi", "left"), ("relative_bias", "none")]
)
def test_renumbered_positions_equal_the_definition(position, side):
    made, x, pos = block(), tokens(), rows(side)
    for window, n_sink, spare in SIZES:
        wanted = in_pieces(made, x, pos, Streaming(window, n_sink), [1] * LENGTH, position)
        room = min(window + n_sink, LENGTH)
        for pieces in ([1] * room, [room], [1, room - 1] if room > 1 else [1]):
            cache = Window(window, n_sink, True, exact=False, spare=spare)
            got = in_pieces(made, x, pos, cache, [*pieces, *[1] * (LENGTH - room)], position)
            close(got, wanted, pos)
        assert cache.n_bytes == 2 * 3 * 2 * (n_sink + window + spare) * 4 * 8


@torch.no_grad()
def test_without_sinks_distances_alone_stay_as_they_were():
    """Rotary positions see only distances: a window that is renumbered equals one that is not."""
    made, x, pos = block(), tokens(), rows("left")
    for position in ("rope", "alibi"):
        got = in_pieces(made, x, pos, Window(4, 0, True), [1] * LENGTH, position)
        close(got, narrowed(made, 4, 0, x, pos, position), pos, 1e-5)  # angles are float32
    sinks = in_pieces(made, x, None, Window(4, 2, True), [1] * LENGTH)
    assert (sinks - narrowed(made, 4, 2, x, None)).abs().max() > 1e-3, "sinks must come nearer"


def test_positions_inside_the_cache_of_rows_that_evict_at_different_times():
    cache, pos = Window(2, 1, True), parts.padded([6, 4], "left")
    told = [cache.update(torch.zeros(2, 1, 1, 1), pos=pos[:, i : i + 1], plain=False)[1:3] for i in range(6)]
    assert [q.flatten().tolist() for q, _ in told] == [[0, -1], [1, -1], [2, 0], [2, 1], [2, 2], [2, 2]]
    assert told[-1][1].tolist() == [[0, 2, 1], [0, 2, 1]]  # tokens 0, 5, 4 and 0, 3, 2
    assert cache.read()[1].tolist() == told[-1][1].tolist()


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_a_renumbering_ring_takes_tokens_back_too(side):
    made, x, pos = block(), tokens(), rows(side)
    for n in (4, 9):
        cache, other = Window(4, 1, True, spare=2), torch.cat([x[:, :n], tokens(3)], 1)
        in_pieces(made, other, None if pos is None else pos[:, : n + 3], cache, [1] * (n + 3))
        cache.crop(n)
        wanted = in_pieces(made, x, pos, Streaming(4, 1), [1] * LENGTH)[:, n:]
        close(in_pieces(made, x, pos, cache, [1] * (LENGTH - n)), wanted, None if pos is None else pos[:, n:])


def test_what_would_evict_must_come_token_by_token():
    cache, limits = Window(3, 2, True), []

    def update(size):
        pos = torch.arange(cache.n_seen, cache.n_seen + size)[None]
        cache.update(torch.zeros(1, 1, size, 1), pos=pos, plain=True)

    for size in (2, 2, 1, 1, 1):
        limits.append(cache.chunk_limit)
        with pytest.raises(ConfigError, match=f"token by token: give {limits[-1]} at most"):
            update(limits[-1] + 1)
        update(size)
    assert limits == [5, 3, 1, 1, 1]
