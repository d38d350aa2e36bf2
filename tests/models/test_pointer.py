import parts
import pytest
import torch

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize.softmax import Softmax
from minitf.config import build, compose, set_data_facts
from minitf.models.head.pointer import PointerHead
from minitf.training.objective.pointer import Pointer

B, T, S, D = 2, 3, 5, 8


def head(score="additive"):
    torch.manual_seed(0)
    return PointerHead(d_model=D, score=build(parts.node("gpt_tiny", f"model/attention/score={score}").attention.score))


def test_a_pointer_is_the_additive_score_of_each_place():
    pointer, hidden, memory = head(), torch.randn(B, T, D), torch.randn(B, S, D)
    w_q, w_k, v = (p[0] for p in (pointer.score.w_q, pointer.score.w_k, pointer.score.v))
    for b, t, s in [(0, 0, 0), (1, 2, 4), (1, 0, 3)]:
        fit = v @ torch.tanh(hidden[b, t] @ w_q + memory[b, s] @ w_k)
        torch.testing.assert_close(pointer(hidden, memory)[b, t, s], fit)


@pytest.mark.parametrize("score", ["additive", "scaled_dot", "log_length"])
def test_a_pointer_is_attention_with_one_hot_places_as_values(score):
    pointer, hidden, memory = head(score), torch.randn(B, T, D), torch.randn(B, S, D)
    src_pos = torch.tensor([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]])
    places = torch.eye(S).expand(B, 1, S, S)  # the values; the keys are the states of the source
    where = {"mask": Full(), "q_pos": torch.zeros(B, T, dtype=torch.long), "k_pos": src_pos}
    q, k = hidden[:, None], memory[:, None]
    out, weights = attend_reference(q, k, places, score=pointer.score, normalize=Softmax(n_heads=1), **where)
    torch.testing.assert_close(out, weights)
    torch.testing.assert_close(out[:, 0], pointer(hidden, memory, src_pos).softmax(-1))
    moved = pointer(hidden, memory.roll(1, 1), src_pos.roll(1, 1)).softmax(
        -1
    )  # were places the keys, nothing would move
    torch.testing.assert_close(moved, out[:, 0].roll(1, -1))


@pytest.mark.parametrize("score", parts.options("model/attention/score"))
def test_padding_of_the_source_cannot_be_pointed_at_and_changes_nothing(score):
    pointer, hidden, memory = head(score), torch.randn(B, T, D), torch.randn(B, S, D)
    alone = pointer(hidden[1:], memory[1:, 2:])
    pos = torch.tensor([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]])
    logits = pointer(hidden, memory, pos)
    assert (logits[1, :, :2] == float("-inf")).all()
    torch.testing.assert_close(logits[1:, :, 2:], alone)
    torch.testing.assert_close(logits[:1], pointer(hidden[:1], memory[:1]))


def test_training_a_pointer_is_finite_where_sources_are_padded():
    pointer = head()
    hidden, memory = torch.randn(B, T, D, requires_grad=True), torch.randn(B, S, D, requires_grad=True)
    pos = torch.tensor([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]])
    loss = -pointer(hidden, memory, pos).log_softmax(-1)[:, :, 2:].mean()
    loss.backward()
    assert memory.grad.isfinite().all()
    assert (memory.grad[1, :2] == 0).all()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in pointer.parameters())


@pytest.mark.parametrize("preset", ["pointer_tiny", "luong"])
def test_a_model_learns_to_point_at_the_largest_token(preset):
    sizes = ["model.d_model=32", "data.seq_len=8"] + (["model/head=pointer"] if preset == "luong" else [])
    cfg = compose("train", [f"model={preset}", *sizes, "task=pointer"])
    set_data_facts(cfg, vocab_size=9, src_vocab_size=9)
    torch.manual_seed(0)
    model, objective = build(cfg.model), build(cfg.task)
    assert isinstance(objective, Pointer)
    objective.check(model)
    src = torch.stack([torch.randperm(9)[:5] for _ in range(16)])
    src_pos = torch.arange(5).repeat(16, 1)
    src_pos[::2, 4] = -1
    best = src.masked_fill(src_pos < 0, -1).argmax(-1)
    batch = {"src": src, "src_pos": src_pos, "ids": torch.zeros(16, 1, dtype=torch.long), "targets": best[:, None]}
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss, metrics = objective(model, batch)
        loss.backward()
        optimizer.step()
    assert metrics["n_correct"] == 16
    assert loss < 0.3
