import head_models
import parts
import pytest
import torch

from minitf.analysis import forward
from minitf.analysis.sites import sites
from minitf.config import build

KINDS = ["repeat", "look_back", "sort", "sort_pointer", "majority"]
SMALL = ("data.n_val=24", "data.batch_size=8", "model.d_model=16")


def test_sites_are_named_by_what_they_read():
    found = sites(parts.model("gpt_tiny"))
    assert [(s.kind, s.layer, s.prefix, s.n_heads) for s in found] == [
        ("self", 0, "layers.0.attention", 4),
        ("self", 1, "layers.1.attention", 4),
    ]
    assert found[1].name(3) == "1.3"
    assert found[1].point("weights") == "layers.1.attention.weights"
    both = ["encoder 0.0", "encoder 1.0", "decoder 0.0", "cross 0.0", "decoder 1.0", "cross 1.0"]
    assert [s.name(0) for s in sites(parts.model("encdec_tiny"))] == both
    assert [(s.name(0), s.n_heads) for s in sites(parts.model("bahdanau"))] == [("cross 0.0", 1)]
    assert sites(parts.model("gpt_tiny", "model/attention=none")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_right_answers_are_those_of_the_objective(kind):
    setting = (f"data={kind}", *SMALL)
    model, batch = head_models.new_model(0, *setting), head_models.batches(*setting)[0]
    with torch.no_grad():
        _, metrics = build(head_models.prepared(*setting)[0].task)(model, batch)
        losses, right = forward.losses(model, batch), forward.is_right(model, batch)
        logits = forward.run(model, batch)
        assert torch.equal(forward.losses(model, batch, logits), losses)
    scored = forward.answers(batch) != forward.IGNORED
    assert losses.shape == right.shape == scored.shape
    assert not losses[~scored].any()
    torch.testing.assert_close(losses.sum(), metrics["nll"])  # without label smoothing
    assert right.sum() == metrics["n_correct"]
    assert 0 < scored.sum() == metrics["n_scored"]


def test_positions_of_each_kind_of_site():
    ids, src = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 5, dtype=torch.long)
    src_pos = torch.tensor([[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]])
    batch = {"ids": ids, "src": src, "src_pos": src_pos}
    target = torch.arange(3).expand(2, 3)
    for kind, expected in {
        "decoder": (target, target),
        "cross": (target, src_pos),
        "encoder": (src_pos, src_pos),
    }.items():
        assert all(torch.equal(a, b) for a, b in zip(forward.positions(batch, kind), expected, strict=True))


def test_rows_are_cut_out_and_what_has_none_stays():
    pos = torch.arange(3)[None]
    batch = {"ids": torch.arange(12).view(4, 3), "pos": pos, "n_scored": 5}
    cut = forward.rows_of(batch, 1, 3)
    assert cut["ids"].tolist() == [[3, 4, 5], [6, 7, 8]]
    assert cut["pos"] is pos
    assert cut["n_scored"] == 5


def test_evaluating_gives_back_the_mode_of_each_module():
    model = parts.model("gpt_tiny").train()
    model.layers[1].eval()
    before = [m.training for m in model.modules()]
    with forward.evaluating(model):
        assert not any(m.training for m in model.modules())
    assert [m.training for m in model.modules()] == before
    assert any(before)
    assert not all(before)
