import math

import pytest
import torch
from torch import nn
from training_stubs import TinyDecoder, V, tokens

from minitf.errors import ConfigError
from minitf.training.objective.causal_lm import CausalLM


def batch_of(ids):
    return {"ids": ids[:, :-1], "targets": ids[:, 1:].clone()}


def grads(model, objective, batch):
    model.zero_grad()
    loss, metrics = objective(model, batch)
    loss.backward()
    return loss.detach(), metrics, [p.grad.clone() for p in model.parameters()]


def test_uniform_logits_cost_ln_v():
    model = TinyDecoder()
    nn.init.zeros_(model.embedding.weight)
    nn.init.zeros_(model.down.weight)
    nn.init.zeros_(model.down.bias)
    loss, metrics = CausalLM()(model, batch_of(tokens(0, 3)))
    assert loss.item() == pytest.approx(math.log(V), rel=1e-6)
    assert metrics["n_scored"] == 18
    assert metrics["nll"].item() == pytest.approx(18 * math.log(V), rel=1e-6)


def test_only_scored_tokens_count():
    model, batch = TinyDecoder(), batch_of(tokens(0, 2))
    batch["targets"][0, 2:] = -100
    loss, metrics = CausalLM()(model, batch)
    logits = model.head(model.hidden(batch["ids"]))
    rows = [(0, 0), (0, 1), *((1, t) for t in range(6))]
    nll = -sum(logits[b, t].log_softmax(-1)[batch["targets"][b, t]] for b, t in rows)
    assert metrics["n_scored"] == 8
    assert loss.item() == pytest.approx(nll.item() / 8, rel=1e-6)


def test_nothing_scored_is_zero_loss_and_zero_gradient():
    model, batch = TinyDecoder(), batch_of(tokens(0, 2))
    batch["targets"][:] = -100
    loss, metrics, gradients = grads(model, CausalLM(), batch)
    assert loss == 0
    assert metrics["n_scored"] == 0
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("chunk_rows", [1, 5, 18, 1000])
def test_chunks_change_neither_loss_nor_gradient(chunk_rows):
    model, batch = TinyDecoder(), batch_of(tokens(0, 3))
    batch["targets"][0, :3] = -100
    loss, _, gradients = grads(model, CausalLM(), batch)
    chunked_loss, _, chunked_gradients = grads(model, CausalLM(chunk_rows), batch)
    torch.testing.assert_close(chunked_loss, loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(chunked_gradients, gradients, rtol=1e-5, atol=1e-7)


def test_the_loss_is_float32_under_autocast():
    model, batch = TinyDecoder(), batch_of(tokens(0, 2))
    with torch.autocast("cpu", torch.bfloat16):
        loss, metrics = CausalLM(4)(model, batch)
        assert model.head(model.hidden(batch["ids"])).dtype == torch.bfloat16
    assert loss.dtype == metrics["nll"].dtype == torch.float32


def test_positions_are_passed_on():
    model, batch = TinyDecoder(), batch_of(tokens(0, 2))
    batch["pos"] = torch.arange(6).expand(2, 6)
    CausalLM()(model, batch)
    assert model.seen_pos is batch["pos"]


def test_chunk_rows_must_be_positive():
    with pytest.raises(ConfigError, match=r"chunk_rows \(0\)"):
        CausalLM(0)
