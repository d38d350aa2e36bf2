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
from minitf.positions import from_real, packed
from minitf.tap import Tap, zero_heads

PRESETS = parts.presets()
UNLIKE = ["gpt_tiny", "qwen3_tiny", "mixed_tiny"]  # what is slow is done with these: all the parts that presets have
# the other masks, and layers without attention, have tests of their own and are tried once each below
MASKS = ["causal", "sliding_window"]
CELLS = {
    "attention": [name for name in parts.options("model/attention") if name != "none"],
    "position": parts.options("model/position"),
    "mask": [*MASKS, "full"],
    "layer": parts.options("model/layer"),
    "ffn": parts.options("model/ffn"),
    "norm": parts.options("model/norm"),
}


OTHERS = [{"mask": name} for name in parts.options("model/mask") if name not in CELLS["mask"]]
OTHERS += [{"attention": "none"}, {"attention": "none", "ffn": "none"}]
CAUSAL = [
    cell
    for cell in OTHERS
    if not build(parts.node("gpt_tiny", f"model/mask={cell.get('mask', 'causal')}").mask).sees_future
]


def of(cell, scale=8.0):
    return parts.model("gpt_tiny", *(f"model/{axis}={option}" for axis, option in cell.items()), scale=scale)


def close(a, b, bound=1e-5):
    """Equal to `bound`, measured against logits that are not tiny."""
    torch.testing.assert_close(a, b, atol=bound * max(1.0, b.detach().abs().max().item()), rtol=0)


def test_parts_are_put_together_as_hydra_does():
    for preset in UNLIKE[:2]:
        chosen = ["model/attention=mqa", "model/position=none", "model/norm=layer", "model.attention.dropout=0.25"]
        assert parts.node(preset, *chosen) == parts.compose(f"model/{preset}", [*parts.sizes(preset), *chosen]).model


# --- what a preset promises ---


@pytest.mark.parametrize("preset", PRESETS)
def test_first_loss_is_that_of_guessing(preset):
    torch.manual_seed(0)
    model = build(parts.node(preset, "model.d_model=128", "model.n_layers=4", "model.max_len=64"))
    ids, targets = torch.randint(65, (2, 8, 64))
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).item()
    assert loss == pytest.approx(math.log(65), rel=0.1)


@pytest.mark.parametrize("preset", UNLIKE)
def test_a_preset_learns_one_batch_by_heart(preset):
    torch.manual_seed(0)
    model = build(parts.node(preset, "model.d_model=32", "model.dropout=0.0"))
    ids = torch.randint(65, (4, 17))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("preset", PRESETS)
def test_parameters_are_as_many_as_the_formula_says(preset, tied):
    n, d, t, layers = 65, 16, 32, 2
    made = parts.node(preset, f"model.tie_embeddings={tied}")
    a = made.attention
    kind = {key: made[key]._target_.rsplit(".", 1)[1] for key in ("position", "ffn", "norm")}
    width, matrices = {"SwiGLU": (48, 3)}.get(kind["ffn"], (4 * d, 2))
    norm = {"LayerNorm": 2 * d, "RMSNorm": d}[kind["norm"]]
    d_head, queries = a.d_head or d // a.n_heads, a.n_heads * (a.d_head or d // a.n_heads)
    keys = queries * (a.n_kv_heads or a.n_heads) // a.n_heads
    layer = 2 * d * (queries + keys) + matrices * d * width + 2 * norm
    layer += 2 * d_head if a.qk_norm._target_.endswith("RMSNorm") else 0
    layer += queries + 2 * keys + d if a.projection.bias else 0
    layer += (matrices - 1) * width + d if made.ffn.bias else 0
    expected = n * d * (1 if tied else 2) + layers * layer + norm + (t * d if kind["position"] == "Learned" else 0)
    assert sum(p.numel() for p in build(made).parameters()) == expected


@pytest.mark.parametrize("cell", [*parts.pairs(**CELLS), *OTHERS], ids=parts.name)
def test_no_parameter_is_shared_and_every_one_is_used(cell):
    model = of(cell)
    by_name = dict(model.named_parameters(remove_duplicate=False))
    shared = {name for name, p in by_name.items() if sum(p is q for q in by_name.values()) > 1}
    assert shared == {"embedding.weight", "head.weight"}
    modules = [m for _, m in model.named_modules(remove_duplicate=False)]
    assert len({id(m) for m in modules}) == len(modules)
    model(torch.randint(65, (2, 12))).square().sum().backward()
    for name, p in by_name.items():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.any() or ".experts." in name, name  # no token may have chosen an expert


# --- tied weights ---


def test_tied_weights_stay_tied():
    def check(model):
        assert model.head.weight is model.embedding.weight
        assert model.head.weight.data_ptr() == model.embedding.weight.data_ptr()
        assert sum(p is model.head.weight for p in model.parameters()) == 1

    model, ids = parts.model(), torch.randint(65, (2, 8))
    check(model)
    twin = copy.deepcopy(model)
    check(twin)
    assert twin.head.weight is not model.head.weight
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build(parts.node())
    loaded.load_state_dict(torch.load(file, weights_only=True))
    check(loaded)
    assert torch.equal(loaded.eval()(ids), model(ids))
    assert torch.equal(twin(ids), model(ids))
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1)
    twin(ids).square().sum().backward()
    optimizer.step()
    check(twin)
    check(twin.to(torch.float64).to(torch.float32))
    untied = parts.model("gpt_tiny", "model.tie_embeddings=false")
    assert untied.head.weight.data_ptr() != untied.embedding.weight.data_ptr()


# --- padding, packing, causality ---


@pytest.mark.parametrize("cell", [*parts.pairs(**CELLS), *OTHERS], ids=parts.name)
def test_padding_and_neighbours_change_nothing(cell):
    model, ids = of(cell), torch.randint(65, (3, 9))
    for padding in (0, 3, 20):
        for side in ("left", "right"):
            width, lengths = 9 + padding, torch.tensor([[9], [4], [0]])
            places = torch.arange(width)
            real = places < lengths if side == "right" else places >= width - lengths
            rows = torch.randint(65, (3, width))
            for row, n in enumerate((9, 4, 0)):
                rows[row, real[row]] = ids[row, :n]
            logits = model(rows, from_real(real))
            assert logits.isfinite().all()
            for row, n in enumerate((9, 4)):
                close(logits[row, real[row]], model(ids[row : row + 1, :n])[0])
    packed_row = model(torch.cat([ids[0], ids[1, :4]])[None], packed([9, 4], 13)[None])
    close(packed_row[0, :9], model(ids[:1])[0])
    close(packed_row[0, 9:], model(ids[1:2, :4])[0])


@pytest.mark.parametrize("cell", [*parts.pairs(**{**CELLS, "mask": MASKS}), *CAUSAL], ids=parts.name)
def test_logits_have_zero_gradient_to_later_tokens(cell):
    model, ids, start = of(cell), torch.randint(65, (1, 10)), {}

    def leaf(x):
        start["x"] = x.detach().requires_grad_()
        return start["x"]

    with Tap(model, edit={"layers.0.resid_in": leaf}):
        logits = model(ids)
    for t in (0, 4, 9):
        (grad,) = torch.autograd.grad(logits[0, t].square().sum(), start["x"], retain_graph=True)
        assert not grad[0, t + 1 :].any()
        assert grad[0, t].any()
    changed = ids.clone()
    changed[0, 5] = (ids[0, 5] + 1) % 65
    before, after = model(ids)[:, :5], model(changed)[:, :5]
    # experts work on batches of the tokens that chose them, whose size changes the last bit
    close(after, before, 1e-6) if cell.get("ffn") == "moe" else close(after, before, 0.0)


# --- caches ---


CACHED = {
    "attention": CELLS["attention"],
    "position": CELLS["position"],
    "mask": MASKS,
    "cache": parts.fitting_caches("sliding_window"),
}


def assert_pieces_equal_one_pass(cell):
    make = parts.caches(cell["cache"])
    model, ids = of({axis: option for axis, option in cell.items() if axis != "cache"}), torch.randint(65, (3, 7))
    with torch.no_grad():
        for side in parts.PADDINGS:
            pos = parts.padded([7, 4, 1], side)
            whole = model(ids, pos)
            real = torch.ones(3, 7).bool() if pos is None else pos >= 0
            for size in range(1, 8):
                caches = model.new_caches(make)
                pieces = [
                    model(ids[:, i : i + size], None if pos is None else pos[:, i : i + size], caches)
                    for i in range(0, 7, size)
                ]
                close(torch.cat(pieces, 1)[real], whole[real])
                assert caches[0].n_seen == 7
                assert caches[0].plain == (pos is None)


@pytest.mark.parametrize("cell", parts.pairs(**CACHED), ids=parts.name)
def test_pieces_of_every_size_equal_one_pass(cell):
    assert_pieces_equal_one_pass(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", filter(parts.fits, parts.product(**CACHED)), ids=parts.name)
def test_pieces_of_every_size_equal_one_pass_in_every_cell(cell):
    assert_pieces_equal_one_pass(cell)


def test_step_gives_the_logits_of_the_last_token():
    model, ids = parts.model(scale=8), torch.randint(65, (2, 6))
    close(model.step(ids), model(ids)[:, -1])


def test_caches_that_do_not_fit_are_refused_by_name():
    model, ids = parts.model(), torch.randint(65, (2, 6))
    a, b = Dynamic(), Dynamic()
    for caches in ([], [a], [a, a], [a, b, b]):
        for pos in (None, torch.arange(6)[None]):
            with pytest.raises(ConfigError, match="2 layers and needs a cache for each"):
                model(ids, pos, caches)
    caches = model.new_caches(Dynamic)
    model(ids, None, caches)
    with pytest.raises(ConfigError, match="holds 2 rows, got 1"):
        model(ids[:1], None, caches)
    wider = parts.model("gpt_tiny", "model.attention.d_head=8")
    with pytest.raises(ConfigError, match="holds entries"):
        wider(ids, None, caches)
    with pytest.raises(ConfigError, match="holds entries"):
        copy.deepcopy(model).double()(ids, None, caches)
    padded = model.new_caches(Dynamic)
    model(ids, parts.padded([6, 3], "left"), padded)
    with pytest.raises(ConfigError, match="give the positions"):
        model(ids[:, :1], None, padded)
    with pytest.raises(ConfigError, match="without caches"):
        parts.model("gpt_tiny", "model/mask=full")(ids, None, model.new_caches(Dynamic))


def test_a_cache_that_is_reset_is_as_new():
    model, (a, b) = parts.model(scale=8), torch.randint(65, (2, 3, 8))
    caches = model.new_caches(Dynamic)
    for ids in (a, b[:, :5], a, b[:1]):
        for cache in caches:
            cache.reset()
        assert torch.equal(model(ids, None, caches), model(ids, None, model.new_caches(Dynamic)))


# --- limits and mistakes ---


def test_a_learned_table_ends_with_a_clear_error():
    model, ids = parts.model("gpt_tiny", "model/position=learned", "model.max_len=8"), torch.randint(65, (1, 9))
    model(ids[:, :8])
    model(ids, packed([8, 1], 9)[None])  # places count within a document
    for pos in (None, torch.arange(9)[None]):
        with pytest.raises(ConfigError, match="9 tokens do not fit the learned position table of 8 places"):
            model(ids, pos)
    caches = model.new_caches(Dynamic)
    model(ids[:, :8], None, caches)
    with pytest.raises(ConfigError, match="9 tokens"):
        model(ids[:, 8:], None, caches)
    for name in parts.options("model/position"):
        free = parts.model("gpt_tiny", f"model/position={name}", "model.max_len=8")
        if free.position_limit is None:
            free(ids)


@pytest.mark.parametrize(
    "pos",
    [torch.ones(2, 6).bool(), torch.ones(2, 6), torch.arange(6).int()[None], torch.arange(6), torch.arange(7)[None]],
    ids=["bool", "float", "int32", "one axis", "another length"],
)
def test_what_is_no_position_is_refused(pos):
    with pytest.raises(ConfigError, match="must be int64"):
        parts.model()(torch.randint(65, (2, 6)), pos)


@pytest.mark.parametrize("size", ["vocab_size", "max_len", "d_model", "n_layers"])
def test_sizes_below_one_are_refused(size):
    with pytest.raises(ConfigError, match=rf"{size}( \(data\.seq_len\))? must be a whole number of at least 1, got 0"):
        parts.model("gpt_tiny", f"model.{size}=0")


def test_positions_that_attention_cannot_apply_are_refused_while_building():
    made = build({**parts.node("gpt_tiny", "model/position=rope"), "_partial_": True})

    def deaf(**sizes):
        block = build(parts.node().attention)(**sizes)
        block.accepts = frozenset({"embed"})
        return block

    with pytest.raises(ConfigError, match=r"model/position=rope works by \['rotate'\].*takes only \['embed'\]"):
        made(attention=deaf)


def test_dropout_acts_in_training_only():
    model, ids = parts.model("gpt_tiny", "model.dropout=0.5", scale=8), torch.randint(65, (1, 8))
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))
    for module in model.layers.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.dropout.p = 1.0  # nothing of the embedding is left: every token looks alike
    assert torch.equal(model(ids), model(ids.flip(1)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_model_keeps_its_dtype_from_end_to_end(preset, dtype):
    model, ids = parts.model(preset, scale=4), torch.randint(65, (2, 8))
    exact = model(ids)
    logits = copy.deepcopy(model).to(dtype)(ids)
    assert logits.dtype == dtype
    close(logits.float(), exact, 1e-5 if dtype == torch.float64 else 0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(model(ids).float(), exact, 0.05)


def traced(model):
    """A copy under torch.compile's tracer, without a code generator: what cannot be followed fails here too."""
    torch.compiler.reset()
    twin = copy.deepcopy(model)
    twin.compile(backend="eager", fullgraph=True)
    assert list(twin.state_dict()) == list(model.state_dict())
    return twin


@torch.no_grad()
@pytest.mark.parametrize("preset", parts.some_by_default(UNLIKE, 3))
def test_a_compiled_model_follows_other_lengths(preset):
    model, ids = parts.model(preset, scale=8), torch.randint(65, (2, 8))
    twin = traced(model)
    for n in (8, 5):  # from the second length on, sizes are symbols
        close(twin(ids[:, :n]), model(ids[:, :n]))


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("preset", PRESETS)
def test_a_compiled_model_follows_taps_padding_and_caches(preset):
    model, ids = parts.model(preset, scale=8), torch.randint(65, (2, 9))
    twin, edit = traced(model), {"layers.0.attention.heads": zero_heads([1])}
    with Tap(twin, at=["*.weights"], edit=edit) as tap, Tap(model, at=["*.weights"], edit=edit) as expected:
        close(twin(ids), model(ids))
    assert set(tap.values) == set(expected.values)
    for name, weights in expected.values.items():
        close(tap[name], weights)
    close(twin(ids), model(ids))
    caches = twin.new_caches(Dynamic)
    pieces = [twin(ids[:, a:b], None, caches) for a, b in ((0, 5), (5, 6), (6, 9))]
    close(torch.cat(pieces, 1), model(ids))
    twin.compile(backend="eager")  # a learned table asks how long the longest row is
    pos = parts.padded([9, 4], "left")
    close(twin(ids, pos), model(ids, pos))


def test_every_argument_of_the_decoder_has_a_docstring():
    from minitf.models.decoder import Decoder

    for argument in list(inspect.signature(Decoder).parameters):
        assert argument in Decoder.__doc__, argument
