import copy
import io

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR
from training_stubs import TinyDecoder, tokens

from minitf.errors import ConfigError
from minitf.training import precision
from minitf.training.muon import orthogonal
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.optim import adamw, layer_matrices, muon


def backward(model, step):
    ids = tokens(step, 4)
    loss, _ = CausalLM()(model, {"ids": ids[:, :-1], "targets": ids[:, 1:]})
    loss.backward()
    return loss


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


def names_of(model, parameters):
    names = {id(p): name for name, p in model.named_parameters()}
    return {names[id(p)] for p in parameters}


class WithHead(nn.Module):
    """A head that is a module with a weight of its own, and a learned table of positions."""

    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 11)


def test_decay_spares_norms_and_biases_and_counts_a_tied_weight_once():
    model = TinyDecoder()
    decayed, spared = adamw(model, lr=0.1, weight_decay=0.3).param_groups
    assert names_of(model, decayed["params"]) == {"embedding.weight", "up.weight", "down.weight"}
    assert names_of(model, spared["params"]) == {"norm.weight", "norm.bias", "up.bias", "down.bias"}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.3, 0.0)
    assert decayed["fused"]


def test_vectors_can_be_decayed_too():
    model = TinyDecoder()
    (group,) = adamw(model, lr=0.1, weight_decay=0.3, decay_vectors=True).param_groups
    assert names_of(model, group["params"]) == {name for name, _ in model.named_parameters()}
    assert group["weight_decay"] == 0.3
    with pytest.raises(ConfigError, match=r"optim.decay_vectors \('yes'\) must be true or false"):
        adamw(model, lr=0.1, decay_vectors="yes")


@pytest.mark.parametrize("model", [TinyDecoder(), WithHead()])
def test_muon_takes_layer_matrices_only_and_every_parameter_is_trained_once(model):
    optimizer = muon(model, lr=0.02, adamw_lr=0.004)
    assert names_of(model, optimizer.muon.param_groups[0]["params"]) == {"up.weight", "down.weight"}
    everything = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(everything) == sorted(id(p) for p in model.parameters())


def test_frozen_parameters_are_left_out():
    model = TinyDecoder()
    model.up.requires_grad_(False)
    assert names_of(model, layer_matrices(model)) == {"down.weight"}
    optimizer = muon(model, lr=0.02, adamw_lr=0.004)
    assert not any(p is model.up.bias for group in optimizer.param_groups for p in group["params"])


def test_muon_equals_its_two_members_run_apart(monkeypatch):
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
    joint, apart = TinyDecoder(), TinyDecoder()
    optimizer = muon(joint, lr=0.02, adamw_lr=0.004, weight_decay=0.1)
    matrices = [apart.up.weight, apart.down.weight]
    rest = [
        {"params": [apart.embedding.weight], "weight_decay": 0.1},
        {"params": [apart.norm.weight, apart.norm.bias, apart.up.bias, apart.down.bias], "weight_decay": 0.0},
    ]
    members = [
        Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        AdamW(rest, lr=0.004, betas=(0.9, 0.95), eps=1e-8, fused=True),
    ]
    train(joint, optimizer, range(5))
    for step in range(5):
        apart.zero_grad()
        backward(apart, step)
        for member in members:
            member.step()
    for a, b in zip(joint.parameters(), apart.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32)])
def test_without_bfloat16_in_hardware_newton_schulz_is_in_float32(monkeypatch, shape):
    """Every singular value goes through the polynomial, as computed in float64; in bfloat16 it is about that."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before, (a, b, c) = matrix.clone(), (3.4445, -4.775, 2.0315)
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.square().sum().sqrt()
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    found = {}
    for has_bf16 in (False, True):
        monkeypatch.setattr(precision, "cpu_has_bf16", lambda has_bf16=has_bf16: has_bf16)
        found[has_bf16] = orthogonal(matrix, (a, b, c), 5, 1e-7)
    assert found[False].dtype == torch.float32
    assert found[True].dtype == torch.bfloat16
    torch.testing.assert_close(found[False].double(), (u * s) @ v, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[True].double(), (u * s) @ v, atol=0.05, rtol=0)
    assert torch.equal(matrix, before)


@pytest.mark.parametrize("make", [lambda m: adamw(m, lr=0.01), lambda m: muon(m, lr=0.02, adamw_lr=0.004)])
def test_a_saved_state_continues_bit_for_bit(make):
    model = TinyDecoder()
    optimizer = make(model)
    train(model, optimizer, range(3))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, range(3, 6))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = TinyDecoder(seed=1)
    again.load_state_dict(saved["model"])
    other = make(again)
    other.load_state_dict(saved["optimizer"])
    train(again, other, range(3, 6))
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_one_scheduler_drives_both_members():
    model = TinyDecoder()
    optimizer = muon(model, lr=0.02, adamw_lr=0.004)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (step + 1))
    backward(model, 0)
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.muon.param_groups] == [0.01]
    assert [group["lr"] for group in optimizer.adamw.param_groups] == [0.002, 0.002]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    scheduler.step()
    assert optimizer.muon.param_groups[0]["lr"] == pytest.approx(0.02 / 3)


def test_a_closure_is_called_once_with_gradients():
    model, calls = TinyDecoder(), []
    optimizer = muon(model, lr=0.02, adamw_lr=0.004)
    before = model.up.weight.detach().clone()

    def closure():
        calls.append(torch.is_grad_enabled())
        return backward(model, 0)

    assert optimizer.step(closure).item() > 0
    assert calls == [True]
    assert not torch.equal(before, model.up.weight)


def test_the_update_of_a_matrix_has_the_stated_size():
    """0.2 * sqrt(longer side) * lr times a nearly orthogonal matrix: root mean square near 0.2 * lr."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128, bias=False), nn.LayerNorm(128))
    before = model[0].weight.detach().clone()
    optimizer = muon(model, lr=1.0, adamw_lr=1.0, weight_decay=0.0)
    model(torch.randn(256, 64)).pow(3).sum().backward()
    optimizer.step()
    assert (model[0].weight - before).pow(2).mean().sqrt().item() == pytest.approx(0.2, rel=0.25)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: adamw(m, lr=0), r"lr \(0\)"),
        (lambda m: adamw(m, lr=0.1, weight_decay=-1), r"weight_decay \(-1\)"),
        (lambda m: muon(m, lr=0.1, adamw_lr=-2), r"adamw_lr \(-2\)"),
        (lambda m: muon(m, lr=0.1, adamw_lr=0.1, ns_steps=0), r"ns_steps \(0\)"),
        (lambda m: muon(nn.Embedding(3, 4), lr=0.1, adamw_lr=0.1), "use optim=adamw"),
        (lambda m: adamw(m.requires_grad_(False), lr=0.1), "nothing to train"),
    ],
)
def test_wrong_values(make, message):
    with pytest.raises(ConfigError, match=message):
        make(TinyDecoder())


def test_a_parametrized_weight_is_trained_by_its_parameter():
    model = nn.Sequential(nn.Linear(6, 6, bias=False))
    nn.utils.parametrizations.weight_norm(model[0])
    model.append(nn.Linear(6, 3))
    nn.utils.parametrize.register_parametrization(model[1], "weight", nn.Identity())
    matrices = layer_matrices(model)
    assert any(p is model[1].parametrizations.weight.original for p in matrices)
    assert all(p.is_leaf for p in matrices)
