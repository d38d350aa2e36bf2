"""The band of a window equals the whole square."""

import pytest
import torch

from minitf.blocks.attend import band
from minitf.blocks.attend.band import attend_band
from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask.bigbird import BigBird
from minitf.blocks.mask.block_local import BlockLocal
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.closed_diagonal import ClosedDiagonal
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.scaled_dot import ScaledDot

BANDS = {
    "window": SlidingWindow(20),
    "itself": SlidingWindow(1),
    "block": BlockLocal(7),
    "causal-block": Causal() & BlockLocal(7),
    "bigbird-window": BigBird(5, 3, 0, 0, 64, 0),
    "empty-rows": SlidingWindow(1) & ClosedDiagonal(),  # only the first token reads anything
}


def inputs(length: int, n_kv: int = 4, d_value: int = 8, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    # the layout of a projection: heads beside each other
    shapes = [(2, length, 4, 8), (2, length, n_kv, 8), (2, length, n_kv, d_value)]
    return [torch.randn(shape, dtype=dtype).transpose(1, 2).requires_grad_() for shape in shapes]


def where(mask, length):
    place = torch.arange(length)[None]
    return {"mask": mask, "q_pos": place, "k_pos": place}


def by_definition(q, k, v, mask):
    parts = {"score": ScaledDot(d_head=8, n_heads=4), "normalize": Softmax(n_heads=4)}
    return attend_reference(q, k, v, **parts, **where(mask, q.size(2)))[0]


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize(("length", "n_kv"), [(192, 4), (205, 1), (223, 2)])
def test_the_band_is_the_definition_in_value_and_gradient(name, length, n_kv):
    mask, (q, k, v) = BANDS[name], inputs(length, n_kv, d_value=6)
    assert band.pays(q, k, mask, True, None)
    ours = attend_band(q, k, v, scale=8**-0.5, plain=True, **where(mask, length))
    defined = by_definition(q, k, v, mask)
    torch.testing.assert_close(ours, defined, atol=1e-5, rtol=0)
    weight = torch.randn_like(defined)
    for a, b in zip(*(torch.autograd.grad((o * weight).sum(), [q, k, v]) for o in (ours, defined)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    with torch.inference_mode():  # other pieces than with a gradient
        torch.testing.assert_close(
            attend_band(q, k, v, scale=8**-0.5, plain=True, **where(mask, length)), defined, atol=1e-5, rtol=0
        )


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-6), (torch.bfloat16, 3e-2)])
def test_the_band_keeps_the_dtype(dtype, bound):
    q, k, v = inputs(200, dtype=dtype)
    with torch.no_grad():
        ours = attend_band(q, k, v, scale=8**-0.5, plain=True, **where(SlidingWindow(20), 200))
        assert ours.dtype == dtype
        exact = by_definition(q.double(), k.double(), v.double(), SlidingWindow(20))
        torch.testing.assert_close(ours.double(), exact, atol=bound, rtol=0)


def test_the_band_drops_weights():
    q, k, v = inputs(256)
    ones = torch.ones_like(v)
    out = attend_band(q, k, ones, scale=1.0, plain=True, dropout=0.25, **where(SlidingWindow(1), 256))
    # one weight a row: dropped, or kept and scaled up
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)


def test_the_square_is_taken_where_a_band_is_impossible_or_wide(monkeypatch):
    taken = []
    monkeypatch.setattr(band, "attend_sdpa", lambda *args, **kwargs: taken.append(kwargs))
    q, k, v = inputs(256)
    window = SlidingWindow(20)
    asked = {"scale": 1.0, "plain": True, "bias": None, "dropout": 0.5, **where(window, 256)}
    elsewhere = [
        (q, k, v, {"plain": False}),
        (q, k, v, {"bias": torch.zeros(1, 4, 256, 256)}),
        (q[:, :, -1:], k, v, {"q_pos": torch.tensor([[255]])}),
        (q[:, :, :160], k[:, :, :160], v[:, :, :160], where(window, 160)),
        (q.bfloat16(), k.bfloat16(), v.bfloat16(), {}),
        *((q, k, v, {"mask": mask}) for mask in (Causal(), Full(), SlidingWindow(20, n_sink=1), SlidingWindow(128))),
    ]
    for *tensors, change in elsewhere:
        attend_band(*tensors, **{**asked, **change})
        assert taken.pop() == {**asked, **change}  # every argument is handed on
    attend_band(q, k, v, **asked)
    assert not taken


def test_pieces_are_kept_but_not_without_bound():
    mask = SlidingWindow(4)
    for length in range(200, 220):
        q, k, v = (t.detach() for t in inputs(length))
        with torch.inference_mode():
            first = attend_band(q, k, v, scale=1.0, plain=True, **where(mask, length))
            assert torch.equal(attend_band(q, k, v, scale=1.0, plain=True, **where(mask, length)), first)
    assert len(band._kept[mask]) == 8
    n_masks = len(band._kept)
    del mask
    assert len(band._kept) < n_masks


def test_what_was_kept_without_a_gradient_serves_one(monkeypatch):
    monkeypatch.setattr(band, "_ROWS_BACKWARD", band._ROWS)
    q, k, v = inputs(200)
    asked = {"scale": 1.0, "plain": True, **where(SlidingWindow(4), 200)}
    with torch.inference_mode():
        attend_band(q.detach(), k.detach(), v.detach(), **asked)
    attend_band(q, k, v, **asked).sum().backward()
    assert q.grad.isfinite().all()
