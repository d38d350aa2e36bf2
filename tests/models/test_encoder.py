import copy
import inspect
import io
import math

import parts
import pytest
import torch
import torch.nn.functional as F

from minitf.config import build, compose
from minitf.errors import ConfigError
from minitf.models.encoder import Encoder
from minitf.models.head.pool.first import FirstPool
from minitf.models.head.pool.mean import MeanPool
from minitf.tap import Tap

PRESETS = parts.presets("Encoder")
HEADS = {"masked_lm": (9, 65), "lm": (9, 65), "tag": (9, 3), "classify": (3,)}
CELLS = {
    "head": list(HEADS),
    "position": parts.options("model/position"),
    "layer": parts.options("model/layer"),
    "norm": parts.options("model/norm"),
    "side": ["left", "right"],
}


def of(cell, *overrides):
    chosen = [f"model/{axis}={option}" for axis, option in cell.items() if axis != "side"]
    return parts.model("bert_tiny", *chosen, *overrides, scale=8)


def close(a, b, bound=1e-5):
    """Equal to `bound`, measured against values that are not tiny."""
    torch.testing.assert_close(a, b, atol=bound * max(1.0, b.detach().abs().max().item()), rtol=0)


# --- what a preset promises ---


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("preset", PRESETS)
def test_first_loss_is_that_of_guessing(preset, head):
    torch.manual_seed(0)
    model = build(parts.node(preset, f"model/head={head}", "model.d_model=128", "model.n_layers=4"))
    logits = model(torch.randint(65, (32, 32))).flatten(0, -2)
    n = logits.size(-1)
    assert F.cross_entropy(logits, torch.randint(n, (len(logits),))).item() == pytest.approx(math.log(n), rel=0.1)


@pytest.mark.parametrize("head", ["masked_lm", "classify"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_learns_one_batch_by_heart(preset, head):
    torch.manual_seed(0)
    model = build(parts.node(preset, f"model/head={head}", "model.d_model=32", "model.dropout=0.0"))
    ids = torch.randint(65, (4, 9))
    pos = parts.padded([9, 4, 7, 2], "left")
    shape = model(ids, pos).shape
    assert shape == (4, *HEADS[head])
    targets = torch.randint(shape[-1], shape[:-1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    real = torch.ones(4).bool() if head == "classify" else pos >= 0
    for _ in range(80):
        loss = F.cross_entropy(model(ids, pos)[real], targets[real])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_parameters_of_bert_are_as_many_as_the_formula_says(head, tied):
    n, d, t, layers, classes = 65, 16, 32, 2, 3
    layer = 4 * (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d) + 2 * 2 * d
    table = 0 if tied else n * d
    own = {"lm": table, "masked_lm": d * d + d + 2 * d + table + n}.get(head, d * classes + classes)
    model = parts.model("bert_tiny", f"model/head={head}", f"model.tie_embeddings={tied}")
    assert sum(p.numel() for p in model.parameters()) == n * d + t * d + 2 * d + layers * layer + own


def test_a_tied_table_stays_tied():
    def check(model):
        assert model.head.output.weight is model.embedding.weight
        assert sum(p is model.embedding.weight for p in model.parameters()) == 1

    model, ids = parts.model("bert_tiny"), torch.randint(65, (2, 8))
    check(model)
    check(copy.deepcopy(model))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build(parts.node("bert_tiny"))
    loaded.load_state_dict(torch.load(file, weights_only=True))
    check(loaded)
    assert torch.equal(loaded.eval()(ids), model(ids))


# --- padding, order ---


@pytest.mark.parametrize("cell", parts.pairs(**CELLS), ids=parts.name)
def test_padding_changes_nothing(cell):
    model, ids = of(cell), torch.randint(65, (3, 9))
    pos = parts.padded([9, 4, 0], cell["side"])
    model(ids, pos).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        out = model(ids, pos)
        other = model(torch.where(pos >= 0, ids, (ids + 1) % 65), pos)
        assert out.isfinite().all()
        for row, n in enumerate((9, 4)):
            real = pos[row] >= 0
            alone = model(ids[row : row + 1, real])[0]
            close(out[row] if out.dim() == 2 else out[row, real], alone)
            assert torch.equal(*((x[row] if x.dim() == 2 else x[row, real]) for x in (out, other)))
            assert len(alone) == (3 if out.dim() == 2 else n)


@torch.no_grad()
@pytest.mark.parametrize("head", ["masked_lm", "classify"])
def test_without_positions_order_is_not_seen(head):
    ids, order = torch.randint(65, (2, 9)), torch.randperm(9)
    model = parts.model("bert_tiny", f"model/head={head}", "model/position=none", scale=8)
    out, moved = model(ids), model(ids[:, order])
    close(moved, out if head == "classify" else out[:, order])
    placed = parts.model("bert_tiny", f"model/head={head}", scale=8)
    seen = placed(ids[:, order]) - (placed(ids) if head == "classify" else placed(ids)[:, order])
    assert seen.abs().max() > 1e-2


def test_a_token_reads_later_ones():
    model, ids = parts.model("bert_tiny", scale=8), torch.randint(65, (1, 9))
    changed = ids.clone()
    changed[0, 8] = (ids[0, 8] + 1) % 65
    assert model.sees_future
    assert (model(changed)[0, 0] - model(ids)[0, 0]).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("how", ["${.norm}", "null"])
def test_the_norm_on_the_embedding_comes_after_positions_and_can_be_left_out(how):
    model, ids = parts.model("bert_tiny", f"model.embedding_norm={how}", "model/norm=layer"), torch.randint(65, (2, 8))
    with Tap(model, at="layers.0.resid_in") as tap:
        model(ids)
    expected, norm = model.embedding.weight[ids] + model.position.table.weight[:8], model.embedding_norm
    if how != "null":
        expected = F.layer_norm(expected, (16,), norm.weight, norm.bias)
    torch.testing.assert_close(tap["layers.0.resid_in"], expected)


# --- heads ---


def test_pools_see_real_tokens_only():
    hidden = torch.tensor([[[1.0], [2.0], [6.0]], [[math.nan], [4.0], [8.0]], [[5.0], [math.inf], [math.nan]]])
    pos = torch.tensor([[0, 1, 2], [-1, 0, 1], [0, -1, -1]])
    assert MeanPool()(hidden, pos).tolist() == [[3.0], [6.0], [5.0]]
    assert FirstPool()(hidden, pos).tolist() == [[1.0], [4.0], [5.0]]
    assert MeanPool()(hidden[:1], None).tolist() == [[3.0]]
    assert FirstPool()(hidden[:1], None).tolist() == [[1.0]]
    assert FirstPool()(hidden[:2], pos[:1]).shape == (2, 1)
    assert MeanPool()(hidden, torch.full((3, 3), -1)).tolist() == [[0.0]] * 3


def test_the_pool_is_an_option():
    made = compose("model/bert_tiny", [*parts.sizes("bert_tiny"), "model/head=classify", "model/head/pool=first"]).model
    model, ids = build(made).eval(), torch.randint(65, (2, 8))
    torch.testing.assert_close(model(ids), model.head.pool(model.hidden(ids), None) @ model.head.weight.T)
    assert isinstance(model.head.pool, FirstPool)


@pytest.mark.parametrize("head", ["classify", "tag"])
def test_data_without_classes_is_refused_by_heads_that_need_them(head):
    with pytest.raises(ConfigError, match=r"the data has none .*model/head=lm or masked_lm"):
        parts.model("bert_tiny", f"model/head={head}", "model.n_classes=null")
    parts.model("bert_tiny", "model.n_classes=null")


def test_a_head_that_points_is_refused():
    with pytest.raises(ConfigError, match="places of a source, which an encoder alone has not"):
        parts.model("bert_tiny", "model/head=pointer")


def test_every_argument_of_the_encoder_has_a_docstring():
    for argument in inspect.signature(Encoder).parameters:
        assert argument in Encoder.__doc__, argument
