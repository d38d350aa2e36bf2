import copy
import inspect
import io
import math

import parts
import pytest
import torch
import torch.nn.functional as F

from minitf.cache.dynamic import Dynamic
from minitf.config import build
from minitf.errors import ConfigError
from minitf.models.encoder_decoder import EncoderDecoder
from minitf.tap import Tap

PRESETS = [name for name in parts.presets("EncoderDecoder") if name != "pointer_tiny"]  # has tests of its own
CELLS = {
    "attention": [name for name in parts.options("model/attention") if name != "none"],
    "position": parts.options("model/position"),
    "layer": parts.options("model/layer"),
    "norm": parts.options("model/norm"),
    "side": ["left", "right"],
}


def of(cell):
    chosen = [f"model/{axis}={option}" for axis, option in cell.items() if axis != "side"]
    return parts.model("encdec_tiny", *chosen, scale=8)


def close(a, b, bound=1e-5):
    """Equal to `bound`, measured against logits that are not tiny."""
    torch.testing.assert_close(a, b, atol=bound * max(1.0, b.detach().abs().max().item()), rtol=0)


def rows(*shape):
    return torch.randint(65, shape)


# --- what a preset promises ---


@pytest.mark.parametrize("preset", PRESETS)
def test_first_loss_is_that_of_guessing(preset):
    torch.manual_seed(0)
    layers = ["model.n_encoder_layers=4", "model.n_decoder_layers=4"]
    model = build(parts.node(preset, "model.d_model=128", "model.max_len=64", *layers))
    loss = F.cross_entropy(model(rows(8, 64), None, rows(8, 64)).flatten(0, 1), rows(512)).item()
    assert loss == pytest.approx(math.log(65), rel=0.1)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_learns_one_batch_by_heart(preset):
    torch.manual_seed(0)
    model = build(parts.node(preset, "model.d_model=32", "model.dropout=0.0"))
    src, ids = rows(4, 9), torch.cat([torch.zeros(4, 1).long(), rows(4, 8)], 1)
    src_pos = parts.padded([9, 4, 7, 2], "right")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        loss = F.cross_entropy(model(src, src_pos, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1  # the first token of each row can only be told from its source


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_of_the_first_transformer_are_as_many_as_the_formula_says(shared, tied):
    n, d = 65, 16
    attention, ffn, norm = 4 * d * d, 2 * 4 * d * d + 5 * d, 2 * d
    expected = 2 * (attention + ffn + 2 * norm) + 2 * (2 * attention + ffn + 3 * norm)
    expected += n * d * (1 + (not shared) + (not tied))
    options = [f"model.share_embeddings={shared}", f"model.tie_embeddings={tied}"]
    assert sum(p.numel() for p in parts.model("vaswani_tiny", *options).parameters()) == expected


def test_shared_and_tied_tables_stay_one():
    def check(model):
        assert model.embedding.weight is model.source_embedding.weight is model.head.weight
        assert sum(p is model.head.weight for p in model.parameters()) == 1

    model, src, ids = parts.model("vaswani_tiny"), rows(2, 8), rows(2, 5)
    check(model)
    check(copy.deepcopy(model))
    check(copy.deepcopy(model).double().float())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build(parts.node("vaswani_tiny")).eval()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    check(loaded)
    assert torch.equal(loaded(src, None, ids), model(src, None, ids))
    apart = parts.model("vaswani_tiny", "model.share_embeddings=false")
    assert apart.embedding.weight is apart.head.weight
    assert apart.source_embedding.weight.data_ptr() != apart.embedding.weight.data_ptr()


def test_the_factor_acts_once_and_on_the_way_in_only():
    src, ids = rows(2, 6), rows(2, 5)
    parts_of = ["model/position=none", "model/layer=pre_norm"]
    seen = {}
    for power in (0.0, 0.5):
        model = parts.model("vaswani_tiny", f"model.embedding_power={power}", *parts_of)
        with Tap(model, at=["encoder.layers.0.resid_in", "decoder.layers.0.resid_in"]) as tap:
            model(src, None, ids)
        seen[power] = tap.values
        torch.testing.assert_close(model.head(torch.eye(16)), model.embedding.weight.T)
    for name in seen[0.0]:
        torch.testing.assert_close(seen[0.5][name], 4 * seen[0.0][name])


# --- padding and causality ---


@torch.no_grad()
@pytest.mark.parametrize("cell", parts.pairs(**CELLS), ids=parts.name)
def test_padding_of_source_and_target_changes_nothing(cell):
    model, src, ids = of(cell), rows(3, 9), rows(3, 6)
    src_pos, pos = parts.padded([9, 4, 2], cell["side"]), parts.padded([2, 6, 3], cell["side"])
    out = model(src, src_pos, ids, pos)
    other = model(torch.where(src_pos < 0, (src + 1) % 65, src), src_pos, torch.where(pos < 0, 7, ids), pos)
    for row in range(3):
        given, real = src_pos[row] >= 0, pos[row] >= 0
        alone = model(src[row : row + 1, given], None, ids[row : row + 1, real])[0]
        close(out[row, real], alone)
        assert torch.equal(out[row, real], other[row, real])


def test_a_row_without_source_is_finite():
    model, src, ids = parts.model("encdec_tiny", scale=8), rows(2, 5), rows(2, 4)
    src_pos = parts.padded([5, 0], "right")
    out = model(src, src_pos, ids)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_no_gradient_to_later_targets_and_some_to_every_source():
    model, src, ids, start = parts.model("encdec_tiny", scale=8), rows(1, 7), rows(1, 6), {}

    def leaf(name):
        def change(x):
            start[name] = x.detach().requires_grad_()
            return start[name]

        return change

    edit = {f"{stack}.layers.0.resid_in": leaf(stack) for stack in ("encoder", "decoder")}
    with Tap(model, edit=edit):
        logits = model(src, None, ids)
    for t in (0, 3, 5):
        wanted = (start["encoder"], start["decoder"])
        source, target = torch.autograd.grad(logits[0, t].square().sum(), wanted, retain_graph=True)
        assert not target[0, t + 1 :].any()
        assert target[0, t].any()
        assert source.any(-1).all()
    assert not model.sees_future
    assert parts.model("encdec_tiny", "model/mask=full").sees_future


# --- caches ---


@torch.no_grad()
@pytest.mark.parametrize("cell", parts.pairs(**CELLS), ids=parts.name)
def test_pieces_with_caches_equal_one_pass(cell):
    model, src, ids = of(cell), rows(3, 9), rows(3, 7)
    for side in ("none", cell["side"]):
        src_pos, pos = parts.padded([9, 4, 2], side), parts.padded([3, 7, 5], side)
        whole = model(src, src_pos, ids, pos)
        real = torch.ones(3, 7).bool() if pos is None else pos >= 0
        memory = model.encode(src, src_pos)
        for size in (1, 3):
            caches = model.new_caches(Dynamic)
            assert len(caches) == 4
            for i in range(0, 7, size):
                part = None if pos is None else pos[:, i : i + size]
                step = model.step(ids[:, i : i + size], part, caches, memory, src_pos)
                last = min(i + size, 7) - 1
                close(step[real[:, last]], whole[:, last][real[:, last]])
            assert [cache.n_seen for cache in caches] == [7, 7, 9, 9]


def test_the_source_is_encoded_once_and_projected_once():
    model, src, ids = parts.model("encdec_tiny", scale=8), rows(2, 5), rows(2, 4)
    calls = {"encoder": 0, "keys": 0}

    def count(name):
        return lambda *_: calls.__setitem__(name, calls[name] + 1)

    model.encoder.layers[0].register_forward_hook(count("encoder"))
    model.decoder.layers[0].cross_attention.projection.w_k.register_forward_hook(count("keys"))
    memory, caches = model.encode(src), model.new_caches(Dynamic)
    for i in range(4):
        model.step(ids[:, i : i + 1], None, caches, memory)
    assert calls == {"encoder": 1, "keys": 1}


# --- parts that differ, mistakes ---


def test_cross_attention_can_be_another_part():
    node = parts.node("encdec_tiny")
    other = build({**parts.node("encdec_tiny", "model/attention=mqa"), "_partial_": True}).keywords["attention"]
    model = build({**node, "_partial_": True})(cross_attention=other)
    for layer in model.decoder.layers:
        assert (layer.attention.n_kv_heads, layer.cross_attention.n_kv_heads) == (4, 1)
    with pytest.raises(ConfigError, match="cross_attention must be a part such as attention, or null, got 3"):
        parts.model("encdec_tiny", "model.cross_attention=3")


def test_layers_of_each_stack_may_differ():
    node = parts.node("encdec_tiny", "model.n_decoder_layers=4")
    node.encoder_recipes = {"small": {"ffn": {**node.ffn, "d_ff": 8}}}
    node.encoder_pattern = ["small", "large"]
    node.decoder_recipes = {"open": {"mask": parts.node("encdec_tiny", "model/mask=full").mask}}
    node.decoder_pattern = ["causal", "open"]
    model = build(node)
    widths = [[layer.ffn.w_in.out_features for layer in stack.layers] for stack in (model.encoder, model.decoder)]
    assert widths == [[8, 48], [48, 48, 48, 48]]
    assert [layer.attention.mask.sees_future for layer in model.decoder.layers] == [False, True, False, True]
    assert model.sees_future


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.src_vocab_size=50", "model.share_embeddings=true"], "needs one vocabulary.* 50 .* 65"),
        (["model.src_vocab_size=null"], r"data.src_vocab_size is null\): choose data with source and target"),
        (["model.n_encoder_layers=0"], "n_encoder_layers must be a whole number of at least 1, got 0"),
        (["model.n_decoder_layers=-1"], "n_decoder_layers must be a whole number of at least 1, got -1"),
        (["model.embedding_power=1e300"], "embedding_power must lie between -2 and 2"),
        (["model.logit_power=.nan"], "logit_power must be a finite number"),
    ],
)
def test_mistakes_are_refused_while_building(overrides, message):
    with pytest.raises(ConfigError, match=message):
        parts.model("encdec_tiny", *overrides)


def test_memory_and_caches_that_do_not_fit_are_refused():
    model, src, ids = parts.model("encdec_tiny", "model.src_vocab_size=50"), torch.randint(50, (2, 5)), rows(2, 4)
    memory, caches = model.encode(src), model.new_caches(Dynamic)
    with pytest.raises(ConfigError, match="reads a source, and was given none"):
        model.hidden(ids)
    with pytest.raises(ConfigError, match="2 rows of target tokens, 1 of memory"):
        model.hidden(ids, memory=memory[:1])
    for wrong in (caches[:2], [*caches[:3], caches[0]]):
        with pytest.raises(ConfigError, match="2 decoder layers and needs two caches for each"):
            model.step(ids, None, wrong, memory)
    with pytest.raises(ConfigError, match="must be int64"):
        model.encode(src, torch.ones(2, 5))
    learned = parts.model("encdec_tiny", "model/position=learned", "model.max_len=4")
    assert learned.position_limit == 4
    with pytest.raises(ConfigError, match="5 tokens do not fit"):
        learned.encode(src)


def test_every_argument_has_a_docstring():
    for argument in inspect.signature(EncoderDecoder).parameters:
        assert argument in EncoderDecoder.__doc__, argument
