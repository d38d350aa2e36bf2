"""How models start: spreads, heads that start alike, zeros, and a learned spectral norm."""

import copy
import math

import parts
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minitf.blocks.init.identical_heads import IdenticalHeads
from minitf.blocks.init.xavier import Xavier
from minitf.blocks.init.zero_q import ZeroQ
from minitf.blocks.projection import Projection
from minitf.blocks.stack import Stack
from minitf.config import build, check, choices, compose
from minitf.errors import ConfigError
from minitf.tap import Tap

ROWS = parts.sizes("gpt_tiny")


def start(*overrides, rows=ROWS):
    """A small model as it starts, always with the same random numbers."""
    torch.manual_seed(0)
    return build(compose("model/gpt_tiny", [*rows, *overrides]).model)


def on(rule, base):
    return [f"model/init={rule}", f"model/init@model.init.base={base}"]


def loss_of(model, n=16):
    torch.manual_seed(1)
    ids = torch.randint(model.embedding.num_embeddings, (4, n + 1))
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def projections_of(model):
    return [m for m in model.modules() if isinstance(m, Projection)]


# --- spreads ---

WIDE = ["model.d_model=128", "model.n_layers=8", "model.vocab_size=500", "model.attention.projection.bias=true"]


def spread(rule, name, shape, n_heads=4):
    """The standard deviation that the rule's formula gives."""
    n_out, n_in = shape
    if rule == "gpt2":
        return 0.02 / 4 if name.endswith(("w_o.weight", "w_out.weight")) else 0.02  # two writes for each of 8 layers
    if rule == "kaiming":
        return math.sqrt(2 / n_in)
    if rule == "unit_variance":
        return 1.0 if "table" in name or "embedding" in name else math.sqrt(1 / n_in)
    if rule == "xavier_per_head":
        n_out /= n_heads if name.endswith(("w_q.weight", "w_k.weight", "w_v.weight")) else 1
        n_in /= n_heads if name.endswith("w_o.weight") else 1
    return math.sqrt(2 / (n_in + n_out))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rule", ["gpt2", "kaiming", "unit_variance", "xavier", "xavier_per_head"])
def test_start_values(rule, tied):
    model = start(f"model/init={rule}", f"model.tie_embeddings={tied}", rows=[*WIDE, "model.max_len=32"])
    for name, p in model.named_parameters():
        if "norm" in name:
            assert torch.equal(p, torch.zeros_like(p) if name.endswith("bias") else torch.ones_like(p)), name
        elif name.endswith("bias"):
            assert not p.any(), name
        else:
            std = spread(rule, name, p.shape)
            assert p.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(p.mean().item()) < 0.1 * std, name
            # a normal value beyond two standard deviations is common, a uniform one impossible
            assert (p.abs().max() > 2 * std) == (not rule.startswith("xavier")), name


@pytest.mark.parametrize(
    ("rule", "expected"), [("xavier", 1.0), ("xavier_per_head", 16 / 9), ("unit_variance", 1.0), ("kaiming", 2.0)]
)
def test_spread_of_scores_of_unit_variance_inputs(rule, expected):
    block = parts.attention("model.attention.n_heads=8", "model/mask=full", d_model=512)
    torch.manual_seed(0)
    build(parts.node("gpt_tiny", f"model/init={rule}").init)(block)
    with Tap(block, at="scores") as tap, torch.no_grad():
        parts.attend(block, torch.randn(4, 64, 512))
    assert tap["scores"].std().item() == pytest.approx(expected, rel=0.03)


def test_with_unit_variance_a_tied_head_starts_far_from_even():
    tied, own = (
        loss_of(start("model/init=unit_variance", f"model.tie_embeddings={tied}", rows=WIDE[:1] + parts.SIZES[:2]))
        for tied in (True, False)
    )
    assert own.item() == pytest.approx(math.log(65) + 0.5, abs=0.25)
    assert tied.item() > 3 * own.item()


def test_unit_variance_counts_the_factor_of_a_table():
    table = nn.Embedding(500, 16)
    table.factor = 4.0
    build(parts.node("gpt_tiny", "model/init=unit_variance").init)(nn.ModuleList([table]))
    assert table.weight.std().item() == pytest.approx(1 / 4, rel=0.05)


@pytest.mark.parametrize("std", ["0.0", "-1.0", ".nan", ".inf"])
def test_a_std_that_is_no_spread_is_refused(std):
    with pytest.raises(ConfigError, match="init std must be"):
        build(parts.node("gpt_tiny", f"model.init.std={std}"))


# --- heads that start alike ---

PROJECTIONS = ["free", "gated", "mean", "smeared", "tied_kv", "tied_qk"]


def slices_are_equal(model, **how):
    for projection in projections_of(model):
        for name, heads in projection.by_head().items():
            for head in heads[1:]:
                torch.testing.assert_close(head, heads[0], **how, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_identical_heads_have_identical_outputs_and_gradients(projection):
    grouped = "mha" if projection == "tied_qk" else "gqa"
    model = start(
        "model/init=identical_heads",
        "model/init@model.init.base=xavier",
        f"model/attention={grouped}",
        f"model/attention/projection={projection}",
        "model/position=rope",
    )
    slices_are_equal(model, atol=0, rtol=0)
    assert len(projections_of(model)[0].by_head()) >= 3
    assert not torch.equal(*(p.w_o.weight for p in projections_of(model)))  # of two layers
    model.double()
    with Tap(model, at="layers.*.attention.heads") as tap:
        loss_of(model).backward()
    for heads in tap.values.values():
        torch.testing.assert_close(heads, heads[:, :1].expand_as(heads), atol=1e-12, rtol=0)
    with torch.no_grad():
        for p in model.parameters():
            assert p.grad.any()
            p.copy_(p.grad)
    slices_are_equal(model, atol=1e-12, rtol=0)


def test_noise_is_a_share_of_its_own_and_the_first_head_stays():
    base, rule = start("model/init=xavier"), on("identical_heads", "xavier")
    noisy = start(*rule, "model.init.noise=1e-3", "model.init.output_noise=1.0")
    for own, made in zip(projections_of(base), projections_of(noisy), strict=True):
        torch.testing.assert_close(made.w_o.weight, own.w_o.weight, atol=1e-7, rtol=0)
        for name in ("w_q", "w_k", "w_v"):
            first, others = made.by_head()[name][:1], made.by_head()[name][1:]
            assert torch.equal(first, own.by_head()[name][:1])
            assert ((others - first).std() / first.std()).item() == pytest.approx(1e-3, rel=0.2)
    half = start(*rule, "model.init.noise=0.6", "model.d_model=256", "model.n_layers=1")
    heads = projections_of(half)[0].by_head()["w_k"]
    for head in heads[1:]:
        assert head.std().item() == pytest.approx(heads[0].std().item(), rel=0.03)  # no wider, no narrower
        assert F.cosine_similarity(head.flatten(), heads[0].flatten(), dim=0).item() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("noise", ["-0.1", "1.5", ".nan"])
def test_noise_is_a_share(noise):
    with pytest.raises(ConfigError, match=r"share from 0 .* to 1"):
        start("model/init=identical_heads", f"model.init.output_noise={noise}")


def test_heads_that_read_other_parts_of_x_cannot_be_identical():
    for projection in ("no_wq", "no_wq_tied_kv", "identity"):
        with pytest.raises(ConfigError, match=r"4 heads of projection=.* read different parts of x"):
            start("model/init=identical_heads", f"model/attention/projection={projection}")
        start("model/init=identical_heads", f"model/attention/projection={projection}", "model.attention.n_heads=1")
    with pytest.raises(ConfigError, match="finds no heads"):
        IdenticalHeads(Xavier(), 0.0, 0.0)(nn.Linear(3, 3))


# --- zeros and gains ---


def test_with_both_at_zero_neither_learns_with_one_the_other_waits():
    for rule, learns in (("zero_q", {"w_q"}), ("zero_qk", set())):
        model = start(*on(rule, "xavier"))
        loss_of(model).backward()
        for p in projections_of(model):
            assert not p.w_q.weight.any()
            assert p.w_k.weight.any() == (rule == "zero_q")
            assert {name for name in ("w_q", "w_k") if getattr(p, name).weight.grad.any()} == learns
            assert p.w_v.weight.grad.any()


def test_a_rule_reaches_cross_attention_and_leaves_the_rest():
    made = parts.node()
    names = ("attention", "position", "ffn", "norm", "layer")
    factories = {name: build(made[name]) for name in names} | {"mask": build(made.mask)}
    sizes = {"max_len": 8, "d_model": 16, "n_layers": 2, "dropout": 0.0}
    torch.manual_seed(0)
    stack = Stack(**sizes, **factories, cross_attention=build(made.attention))
    ZeroQ(Xavier())(stack)
    assert len(projections_of(stack)) == 4
    zero = {name for name, p in stack.named_parameters() if p.dim() == 2 and not p.any()}
    kinds = ("attention", "cross_attention")
    assert zero == {f"layers.{i}.{kind}.projection.w_q.weight" for i in range(2) for kind in kinds}


def test_a_gain_multiplies_queries_and_keys_alone():
    base, changed = start("model/init=xavier"), start(*on("gain", "xavier"), "model.init.factor=3")
    for (name, before), after in zip(base.named_parameters(), changed.parameters(), strict=True):
        torch.testing.assert_close(after, before * (3 if "w_q" in name or "w_k" in name else 1), atol=0, rtol=0)
    tied = start("model/init=gain", "model/attention/projection=tied_qk")  # one matrix, multiplied once
    assert projections_of(tied)[0].w_q.weight.std().item() == pytest.approx(4 * 0.02, rel=0.1)
    with pytest.raises(ConfigError, match=r"init factor must be a finite number above 0, got 0: .*zero_qk"):
        start("model/init=gain", "model.init.factor=0")


@pytest.mark.parametrize("ffn", ["gelu", "swiglu", "moe"])
def test_a_gain_of_the_ffn_multiplies_its_matrices_alone(ffn):
    own = [f"model/ffn={ffn}"]
    base, changed = start("model/init=xavier", *own), start(*on("ffn_gain", "xavier"), "model.init.factor=3", *own)
    within = ("w_in", "w_out", "w_gate")
    for (name, before), after in zip(base.named_parameters(), changed.parameters(), strict=True):
        torch.testing.assert_close(after, before * (3 if any(n in name for n in within) else 1), atol=0, rtol=0)
    torchs = start(*on("ffn_gain", "unit_variance"), "model/ffn=gelu").layers[0].ffn.w_in.weight
    assert torchs.var().item() == pytest.approx(nn.Linear(torchs.size(1), 999).weight.var().item(), rel=0.1)
    with pytest.raises(ConfigError, match="init=ffn_gain changes the matrices of the FFN, which this model has none"):
        start("model/init=ffn_gain", "model/ffn=none")
    with pytest.raises(ConfigError, match="init factor must be a finite number above 0, got 0"):
        start("model/init=ffn_gain", "model.init.factor=0")


@pytest.mark.parametrize(
    ("rule", "projection"),
    [
        *((rule, "identity") for rule in ("zero_q", "zero_qk", "gain", "sigma_reparam")),
        ("zero_q", "no_wq"),
        ("zero_qk", "no_wq"),
    ],
)
def test_a_rule_without_its_matrix_is_refused(rule, projection):
    with pytest.raises(ConfigError, match=rf"init={rule} changes w_q.* no projection of this model has: choose"):
        start(f"model/init={rule}", f"model/attention/projection={projection}")


# --- a learned spectral norm ---


def effective(model):
    return {
        f"{i}.{name}": getattr(p, name)
        for i, p in enumerate(projections_of(model))
        for name in ("w_q", "w_k", "w_v", "w_o")
        if hasattr(p, name)
    }


def gamma_of(matrix):
    return matrix.parametrizations.weight[0].gamma


def test_the_spectral_norm_is_gamma_before_and_while_it_learns():
    base, model = start("model/init=xavier"), start(*on("sigma_reparam", "xavier"))
    for before, matrix in zip(effective(base).values(), effective(model).values(), strict=True):
        weight = before.weight / torch.linalg.matrix_norm(before.weight, 2)
        torch.testing.assert_close(matrix.weight, weight, atol=1e-6, rtol=0)
        assert gamma_of(matrix).item() == 1.0
    with torch.no_grad():
        for i, matrix in enumerate(effective(model).values()):
            gamma_of(matrix).fill_(0.5 + i)
            assert torch.linalg.matrix_norm(matrix.weight, 2).item() == pytest.approx(0.5 + i, rel=1e-5)
            gamma_of(matrix).fill_(1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    for before, matrix in zip(effective(base).values(), effective(model).values(), strict=True):
        assert gamma_of(matrix).item() != 1.0
        moved = matrix.parametrizations.weight.original - before.weight
        assert moved.norm() > 0.05 * before.weight.norm()
        norm = torch.linalg.matrix_norm(matrix.weight.detach(), 2).item()
        assert norm == pytest.approx(abs(gamma_of(matrix).item()), rel=0.03)


def test_a_random_start_finds_the_spectral_norm_on_the_way():
    model = start(*on("sigma_reparam", "xavier"), "model.init.exact_start=false")

    def norm_of():
        return torch.linalg.matrix_norm(effective(model)["0.w_q"].weight.detach(), 2).item()

    assert norm_of() > 1.1, "sigma is too small at first, so the matrix too large"
    for _ in range(300):
        loss_of(model)
    assert norm_of() == pytest.approx(1, rel=0.01)
    with pytest.raises(ConfigError, match=r"exact_start .* must be true or false"):
        start("model/init=sigma_reparam", "model.init.exact_start=3")


def test_the_size_of_the_matrix_itself_has_no_gradient():
    model = start(*on("sigma_reparam", "xavier"))
    loss_of(model).backward()
    for name, matrix in effective(model).items():
        raw = matrix.parametrizations.weight.original
        # only exact if sigma's own gradient is there: W / sigma(W) does not change along W
        assert (raw * raw.grad).sum().abs() < 1e-4 * raw.norm() * raw.grad.norm(), name
        assert gamma_of(matrix).grad.any(), name


def test_a_learned_spectral_norm_is_saved_copied_and_still_in_evaluation():
    model = start(*on("sigma_reparam", "xavier"), "model/attention=gqa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    first, second = loss_of(model), loss_of(model)  # two passes before one backward pass
    (first + second).backward()
    optimizer.step()
    loss_of(model)  # the power method has moved on
    model.eval()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = start(*on("sigma_reparam", "xavier"), "model/attention=gqa").eval()
    assert loss_of(fresh) != loss_of(model)
    fresh.load_state_dict(model.state_dict())
    twin = copy.deepcopy(model)
    assert loss_of(fresh) == loss_of(twin) == loss_of(model)
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    with torch.no_grad():
        gamma_of(effective(twin)["0.w_q"]).mul_(2)
    assert loss_of(twin) != loss_of(model)  # nothing is shared
    assert all(p.dtype == torch.float32 for p in model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        assert effective(model)["0.w_q"].weight.dtype == torch.float32


def test_a_learned_spectral_norm_comes_last_and_needs_a_direction():
    with pytest.raises(ConfigError, match="init=ZeroQ cannot change what init=SigmaReparam has made: turn them round"):
        start(*on("zero_q", "sigma_reparam"))
    with pytest.raises(ConfigError, match="which is 0 for a matrix that init=ZeroQ starts at 0"):
        start(*on("sigma_reparam", "zero_q"))


# --- a rule on a rule, from the command line ---


def test_the_rule_below_is_chosen_in_its_own_place():
    typed = [*on("gain", "identical_heads"), "model/init@model.init.base.base=kaiming", "model.init.base.noise=0.1"]
    cfg = compose("train", typed)
    check(cfg, "train", typed)
    targets = [node["_target_"].rpartition(".")[2] for node in (cfg.model.init, cfg.model.init.base)]
    assert [*targets, cfg.model.init.base.base["_target_"].rpartition(".")[2]] == ["Gain", "IdenticalHeads", "Kaiming"]
    assert choices("train", typed)["model/init@model.init.base"] == "identical_heads"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["+model/init@foo=xavier"], r"puts an option where nothing reads it: model/init=\.\.\."),
        (["+model/init@model.init.base=xavier"], "puts an option where nothing reads it"),
        (["model/init=zero_q", "+model/init@model.init.base.base=xavier"], "puts an option where nothing reads it"),
        ([*on("zero_q", "xavier"), "+model.init.base.std=0.1"], r"'model\.init\.base\.std' is no key"),
        (["model/init=zero_q", "model.init.base.std=small"], r"model\.init\.base\.std must be a number"),
        (
            ["model/init=zero_q", "~model/init@model.init.base"],
            r"model/init@model\.init\.base needs one option: .*=gpt2",
        ),
    ],
)
def test_other_places_are_refused(typed, message):
    with pytest.raises(ConfigError, match=message):
        check(compose("train", typed), "train", typed)
