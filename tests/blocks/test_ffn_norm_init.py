import math

import parts
import pytest
import torch

from minitf.blocks.ffn.swiglu import SwiGLU
from minitf.config import build
from minitf.errors import ConfigError


def ffn(name, d_model=6, **sizes):
    torch.manual_seed(0)
    return build(parts.node("gpt_tiny", f"model/ffn={name}").ffn)(d_model=d_model, **sizes)


def cdf(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


FORMULAS = {
    "relu": lambda f, x: f.w_in(x).clamp_min(0),
    "gelu": lambda f, x: (h := f.w_in(x)) * cdf(h),
    "swiglu": lambda f, x: (g := f.w_gate(x)) / (1 + (-g).exp()) * f.w_in(x),
    "geglu": lambda f, x: (g := f.w_gate(x)) * cdf(g) * f.w_in(x),
    "relu2": lambda f, x: f.w_in(x).clamp_min(0) ** 2,
}
OTHERS = {"none", "moe"}  # those have tests of their own


@pytest.mark.parametrize("name", sorted({*parts.options("model/ffn")} - OTHERS))
def test_ffn_is_its_formula(name):
    block, x = ffn(name), 3 * torch.randn(2, 5, 6)
    formula = FORMULAS[name.removesuffix("_bias")]
    torch.testing.assert_close(block(x), block.w_out(formula(block, x)), atol=1e-5, rtol=0)
    n_biases = sum(name.endswith("bias") for name, _ in block.named_parameters())
    assert n_biases == (len(list(block.children())) if name.endswith("_bias") else 0)
    assert ffn(name, bias=True).w_out.bias is not None


def test_experts_are_all_those_networks():
    assert parts.options("model/ffn/expert") == sorted(FORMULAS)


def test_gated_networks_have_as_many_parameters_as_gelu():
    assert {d: SwiGLU.default_width(d) for d in (3, 128, 384, 4096)} == {3: 8, 128: 344, 384: 1024, 4096: 10928}
    for name in FORMULAS:
        assert sum(p.numel() for p in ffn(name, d_model=384).parameters()) == 8 * 384**2, name
    with pytest.raises(ConfigError, match="d_ff must be a whole number of at least 1, got 0"):
        ffn("gelu", d_ff=0)


@pytest.mark.parametrize("name", parts.options("model/norm"))
def test_norm_is_its_formula(name):
    norm = build(parts.node("gpt_tiny", f"model/norm={name}").norm)(8)
    x = 5 + 3 * torch.randn(4, 8)
    with torch.no_grad():
        for p in norm.parameters():
            p.add_(torch.randn_like(p))
    centred = x - x.mean(-1, keepdim=True)
    formula = {
        "layer": lambda: centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias,
        "none": lambda: x,
        "rms": lambda: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight,
    }[name]
    torch.testing.assert_close(norm(x), formula(), atol=1e-5, rtol=0)
    assert norm.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
