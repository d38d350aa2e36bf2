"""FlexAttention's blocks equal the whole square, and are taken only where they may run and are faster."""

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from minitf.blocks.attend import flex
from minitf.blocks.attend.flex import attend_flex, block_mask
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask import Mask
from minitf.blocks.mask.bigbird import BigBird
from minitf.blocks.mask.block_local import BlockLocal
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.closed_diagonal import ClosedDiagonal
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.prefix_lm import PrefixLM
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.blocks.mask.strided import Strided


class Earlier(Mask):
    """What lies 40 places back or more; the first rows read nothing."""

    def rule(self, q_off, k_off):
        return k_off <= q_off - 40


def sinks() -> Mask:
    return SlidingWindow(16, n_sink=2)  # sparse, and no band


def inputs(length, n_kv=4, d_value=8, dtype=torch.float32):
    shapes = [(2, length, 4, 8), (2, length, n_kv, 8), (2, length, n_kv, d_value)]
    return [torch.randn(shape, dtype=dtype).transpose(1, 2) for shape in shapes]


def asked(mask, length):
    place = torch.arange(length)[None]
    return {"scale": 0.5, "mask": mask, "q_pos": place, "k_pos": place, "plain": True}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(flex, "_failed", [])


@pytest.mark.parametrize("length", [57, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "mask",
    [
        *(Full(), Causal(), SlidingWindow(20), sinks(), PrefixLM(13), ClosedDiagonal(), BlockLocal(8), Strided(16)),
        *(BigBird(8, 3, 4, 1, 64, 0), Causal() & BigBird(4, 3, 8, 2, 64, 1), SlidingWindow(2) | Strided(32), Earlier()),
    ],
    ids=lambda m: "-".join(type(x).__name__ for x in getattr(m, "masks", [m])),
)
def test_blocks_are_those_that_hold_a_visible_pair(mask, length):
    blocks = block_mask(mask, length, torch.device("cpu"), block=8)
    place = torch.arange(64)
    seen = mask.visible(place[:, None], place[None]).expand(64, 64).clone()
    seen[length:], seen[:, length:] = False, False
    tiles = seen.view(8, 8, 8, 8).transpose(1, 2)
    assert torch.equal(blocks.to_dense()[0, 0].bool(), tiles.any(-1).any(-1))
    # inside a block the rule itself decides: the kernel by definition, not compiled
    q, k, v = inputs(length, n_kv=2, d_value=6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = flex_attention(q, k, v, block_mask=blocks, scale=0.5, enable_gqa=True)
    torch.testing.assert_close(ours, attend_sdpa(q, k, v, **asked(mask, length)), atol=1e-5, rtol=0)


def test_block_masks_are_kept_for_each_mask_and_length():
    mask, cpu = sinks(), torch.device("cpu")
    one = block_mask(mask, 64, cpu)
    assert block_mask(mask, 64, cpu) is one
    assert block_mask(mask, 96, cpu) is not one
    assert block_mask(sinks(), 64, cpu) is not one
    for length in range(32, 64):
        block_mask(mask, length, cpu)
    assert block_mask.cache_info().currsize == 16


def spy(monkeypatch):
    """Names the way each call takes."""
    ways = []
    monkeypatch.setattr(flex, "kernel", lambda: lambda *a, **k: ways.append(("flex", a, k)))
    monkeypatch.setattr(flex, "attend_band", lambda *a, **k: ways.append(("other", a, k)))
    return ways


@torch.no_grad()
def test_the_kernel_runs_where_it_is_allowed_and_faster(monkeypatch):
    ways = spy(monkeypatch)
    for mask, length in ((sinks(), 512), (BigBird(32, 3, 32, 1, 1024, 0), 1024), (Strided(128), 1024)):
        q, k, v = inputs(length, n_kv=2)
        attend_flex(q, k, v, **asked(mask, length))
        name, args, given = ways.pop()
        assert name == "flex"
        assert all(a is b for a, b in zip(args, (q, k, v), strict=True))
        assert (given["scale"], given["enable_gqa"]) == (0.5, True)
        assert given["block_mask"] is block_mask(mask, length, q.device)
    with torch.inference_mode():
        attend_flex(q, k, v, **asked(sinks(), 1024))
    assert ways.pop()[0] == "flex"


ELSEWHERE = {
    "padded": {"plain": False},
    "bias": {"bias": torch.zeros(1, 4, 512, 512)},
    "dropout": {"dropout": 0.1},
    "causal": {"mask": Causal()},
    "full": {"mask": Full()},
    "window": {"mask": SlidingWindow(16)},  # a band
    "half-full": {"mask": PrefixLM(9)},
    "every-block": {"mask": Strided(16)},
}


@pytest.mark.parametrize("case", ELSEWHERE)
@torch.no_grad()
def test_other_ways_are_taken_for_what_the_kernel_cannot_do_better(monkeypatch, case):
    ways = spy(monkeypatch)
    q, k, v = inputs(512)
    given = {"bias": None, "dropout": 0.0, **asked(sinks(), 512), **ELSEWHERE[case]}
    attend_flex(q, k, v, **given)
    name, args, handed_on = ways.pop()
    assert name == "other"
    assert all(a is b for a, b in zip(args, (q, k, v), strict=True))
    assert handed_on == given


def test_other_ways_are_taken_for_gradients_short_rows_decoding_and_other_dtypes(monkeypatch):
    ways = spy(monkeypatch)
    q, k, v = inputs(512)
    attend_flex(q, k, v, **asked(sinks(), 512))  # a gradient may be needed
    with torch.no_grad():
        attend_flex(q[:, :, :511], k[:, :, :511], v[:, :, :511], **asked(sinks(), 511))
        attend_flex(q[:, :, -1:], k, v, **{**asked(sinks(), 512), "q_pos": torch.tensor([[511]])})
        attend_flex(q.double(), k.double(), v.double(), **asked(sinks(), 512))
    assert [name for name, *_ in ways] == ["other"] * 4


@torch.no_grad()
def test_without_a_compiler_one_warning_and_the_same_result(monkeypatch):
    calls = []

    def broken(*args, **kwargs):
        calls.append(1)
        raise RuntimeError("No working C++ compiler found\nand a long trace")

    monkeypatch.setattr(flex, "kernel", lambda: broken)
    mask, (q, k, v) = sinks(), inputs(512)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        first = attend_flex(q, k, v, **asked(mask, 512))
        second = attend_flex(q, k, v, **asked(mask, 512))
    assert len(seen) == len(calls) == 1
    assert "cannot be compiled here (RuntimeError: No working C++ compiler found)" in str(seen[0].message)
    expected = attend_sdpa(q, k, v, **asked(mask, 512))
    assert torch.equal(first, expected)
    assert torch.equal(second, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "length", "n_kv", "dtype"),
    [
        (sinks(), 512, 4, torch.float32),
        (BigBird(16, 3, 16, 2, 525, 0), 525, 1, torch.float32),
        (Strided(23), 540, 2, torch.float32),
        (Earlier(), 525, 4, torch.float32),
        (Causal() & BigBird(8, 3, 4, 2, 525, 0), 525, 2, torch.bfloat16),
    ],
    ids=["sinks", "bigbird", "strided", "empty-rows", "causal-bigbird"],
)
def test_the_compiled_kernel_is_the_definition(monkeypatch, mask, length, n_kv, dtype):
    monkeypatch.setattr(flex, "MAX_SHARE", 1.0)
    monkeypatch.setattr(flex, "attend_band", None)  # nothing else may answer
    q, k, v = inputs(length, n_kv, d_value=16, dtype=dtype)
    with torch.inference_mode():
        ours = attend_flex(q, k, v, **asked(mask, length))
        exact = attend_sdpa(q.double(), k.double(), v.double(), **asked(mask, length))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), exact, atol=3e-2 if dtype == torch.bfloat16 else 1e-5, rtol=0)
