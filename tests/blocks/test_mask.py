import parts
import pytest
import torch

from minitf.blocks.attend import dense
from minitf.blocks.mask import Mask
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.config import build
from minitf.errors import ConfigError
from minitf.positions import packed

EVERY_MASK = parts.options("model/mask")


def rows(mask: Mask, q_pos: list[int], k_pos: list[int]) -> list[str]:
    seen = dense(mask, torch.tensor([q_pos]), torch.tensor([k_pos]))[0, 0]
    return ["".join(str(int(x)) for x in row) for row in seen]


def test_queries_are_placed_by_position_not_by_row():
    assert rows(Causal(), [3, 4], range(5)) == ["11110", "11111"]
    assert rows(Causal(), [7], range(8)) == ["11111111"]


def test_window_counts_the_query_itself():
    window3 = ["100000", "110000", "111000", "011100", "001110", "000111"]
    assert rows(SlidingWindow(3), range(6), range(6)) == window3
    assert rows(SlidingWindow(1), range(3), range(3)) == ["100", "010", "001"]
    assert rows(SlidingWindow(6), range(6), range(6)) == rows(Causal(), range(6), range(6))
    assert rows(SlidingWindow(2, n_sink=1), range(5), range(5)) == ["10000", "11000", "11100", "10110", "10011"]


@pytest.mark.parametrize("sizes", [(0,), (-1,), (2.5,), (None,), (2, -1), (2, 0.5)])
def test_a_window_that_means_nothing_is_refused(sizes):
    with pytest.raises(ConfigError, match=r"window|n_sink"):
        SlidingWindow(*sizes)


@pytest.mark.parametrize("name", EVERY_MASK)
def test_no_mask_shows_padding_or_another_document(name):
    mask = build(parts.node("gpt_tiny", f"model/mask={name}").mask)
    pos = packed([3, 2], 6)
    seen = dense(mask, pos[None], pos[None])[0, 0]
    assert seen.dtype == torch.bool
    assert not seen[:, 5].any()
    assert not seen[5].any()
    assert not seen[:3, 3:].any()
    assert not seen[3:, :3].any()
    assert seen[:5, :5].diagonal().all()


@pytest.mark.parametrize("name", EVERY_MASK)
def test_the_flags_of_plain_rows_say_what_the_rule_says(name):
    mask = build(parts.node("gpt_tiny", f"model/mask={name}").mask)
    for made in (mask, mask & Causal(), Causal() & mask, mask | Causal(), mask & Full(), mask | Full()):
        pos = torch.arange(9)[None]
        seen = dense(made, pos, pos)[0, 0]
        seen = seen.expand(9, 9)
        assert made.plain_causal <= torch.equal(seen, torch.ones(9, 9).tril().bool())
        assert made.plain_full <= bool(seen.all())


def test_masks_combine():
    # two windows side by side; a window or the first token
    assert rows(Causal() & SlidingWindow(2), range(4), range(4)) == rows(SlidingWindow(2), range(4), range(4))
    assert rows(SlidingWindow(1) | SlidingWindow(2), range(4), range(4)) == rows(SlidingWindow(2), range(4), range(4))
    assert rows(Full() & Full(), [0], [0, 1, -1]) == ["110"]
    assert rows(Full() | Causal(), [0], [0, 1, -1]) == ["110"]
