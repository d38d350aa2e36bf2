import math

import parts
import pytest
import torch

from minitf.blocks.position.learned import Learned
from minitf.blocks.position.sinusoidal import sinusoids
from minitf.errors import ConfigError
from minitf.positions import SEGMENT

EVERY_POSITION = parts.options("model/position")
pos = torch.arange(6)[None]


@pytest.mark.parametrize("name", EVERY_POSITION)
def test_a_scheme_uses_exactly_the_hooks_it_names(name):
    scheme = parts.position(name)
    x, q = torch.randn(2, 6, 16), torch.randn(2, 4, 6, 4)
    later = pos + 3
    assert torch.equal(scheme.embed(x, later), x) == ("embed" not in scheme.uses)
    assert torch.equal(scheme.rotate(q, later), q) == ("rotate" not in scheme.uses)
    assert (scheme.bias(later, later) is None) == ("bias" not in scheme.uses)


@pytest.mark.parametrize("name", EVERY_POSITION)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_restart_in_each_document_and_padding_counts_as_zero(name, dtype):
    scheme = parts.position(name).to(dtype)
    x, q = torch.randn(1, 1, 16, dtype=dtype), torch.randn(1, 4, 1, 4, dtype=dtype)

    def at(place):
        where = torch.tensor([[place]])
        return scheme.embed(x, where), scheme.rotate(q, where)

    for a, b in ((5, 5 + 2 * SEGMENT), (0, -1)):
        for left, right in zip(at(a), at(b), strict=True):
            assert torch.equal(left, right)
            assert left.dtype == dtype


def test_sinusoids_worked_numbers():
    place = torch.tensor([1])
    four = torch.tensor([[0.841471, 0.540302, 0.010000, 0.999950]])
    five = torch.tensor([[0.841471, 0.540302, 0.025116, 0.999685, 0.000631]])
    torch.testing.assert_close(sinusoids(place, 4), four, atol=1e-6, rtol=0)
    torch.testing.assert_close(sinusoids(place, 5), five, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-4), (torch.bfloat16, 2e-3), (torch.float16, 3e-4)])
def test_rope_angles_are_never_rounded_to_16_bits(dtype, bound):
    d, n = 32, 2048
    places = torch.arange(n)
    x = torch.zeros(1, 1, n, d, dtype=dtype)
    x[..., : d // 2] = 1  # the pair (1, 0) turns into (cos, sin)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        turned = parts.position("rope", d_head=d).rotate(x, places[None])
    angle = places[:, None].double() * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
    exact = torch.cat([angle.cos(), angle.sin()], -1)
    assert turned.dtype == dtype
    assert (turned[0, 0].double() - exact).abs().max() < bound


def test_rope_depends_on_differences_only_and_keeps_lengths():
    rope = parts.position("rope", d_head=8)
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)

    def scores(shift):
        return rope.rotate(q, pos + shift) @ rope.rotate(k, pos + shift).mT

    for shift in (1, 100, 3000):
        torch.testing.assert_close(scores(shift), scores(0), atol=2e-3 if shift > 1000 else 2e-5, rtol=0)
    torch.testing.assert_close(rope.rotate(q, pos + 9).norm(dim=-1), q.norm(dim=-1))
    assert (rope.rotate(q, pos) @ rope.rotate(k, pos + 1).mT - scores(0)).abs().max() > 0.1


def test_rope_turns_feature_i_with_feature_i_plus_half():
    x = torch.tensor([3.0, 5.0, 7.0, 11.0]).view(1, 1, 1, 4)
    c, s = [math.cos(2), math.cos(0.02)], [math.sin(2), math.sin(0.02)]
    expected = [3 * c[0] - 7 * s[0], 5 * c[1] - 11 * s[1], 7 * c[0] + 3 * s[0], 11 * c[1] + 5 * s[1]]
    torch.testing.assert_close(
        parts.position("rope").rotate(x, torch.tensor([[2]])).flatten(), torch.tensor(expected), atol=1e-5, rtol=0
    )


def test_learned_places():
    learned = parts.position("learned", max_len=7)
    x = torch.zeros(1, 6, 16)
    assert isinstance(learned, Learned)
    assert learned.limit == 7
    assert torch.equal(learned.embed(x, pos), learned.table.weight[:6][None])


def test_what_rope_cannot_do_is_refused():
    with pytest.raises(ConfigError, match="even d_head, got 3"):
        parts.position("rope", d_head=3)
    for base in (1.0, -2.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="base"):
            type(parts.position("rope"))(d_model=8, d_head=4, n_heads=2, max_len=8, causal=True, base=base)
