"""Every attention block: two paths that agree, and the laws that no choice of parts may break."""

import copy

import parts
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.blocks.normalize import Normalize
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.position.none import NoPosition
from minitf.blocks.score import Score
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.cache import Dynamic
from minitf.config import build
from minitf.errors import ConfigError
from minitf.tap import Tap, zero_heads

AXES = {
    "attention": parts.options("model/attention"),
    "score": parts.options("model/attention/score"),
    "normalize": parts.options("model/attention/normalize"),
    "projection": parts.options("model/attention/projection"),
    "position": parts.options("model/position"),
    "mask": parts.options("model/mask"),
}
WHERE = {
    "padding": list(parts.PADDINGS),
    "dtype": [torch.float32, torch.float64, torch.bfloat16],
    "pieces": [9, 1, 4],
}
# attention x position pairs that mathematics forbids; every other pair must build
REFUSED: set[tuple[str, str]] = set()
LENGTHS = [9, 5, 0]  # with padding, the last row is padding only
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5, torch.bfloat16: 6e-2}


def block_of(cell, *more):
    choices = [f"model/{'attention/' * (axis in ('score', 'normalize', 'projection'))}{axis}" for axis in AXES]
    chosen = [f"{group}={cell[axis]}" for group, axis in zip(choices, AXES, strict=True) if axis in cell]
    return parts.attention(*chosen, *more)


def run(block, cell, x):
    """Output over all pieces, with a cache if there are several, and the gradients of a weighted sum."""
    x = x.detach().requires_grad_()
    pos, scheme = parts.padded(LENGTHS, cell["padding"]), parts.position(cell["position"]).to(x.dtype)
    size = cell["pieces"] if cell["mask"] != "full" else 9  # what a full mask shows is not in a cache yet
    cache = Dynamic() if size < 9 else None
    out = torch.cat(
        [
            parts.attend(block, x[:, i : i + size], None if pos is None else pos[:, i : i + size], cache, scheme)
            for i in range(0, 9, size)
        ],
        dim=1,
    )
    real = torch.ones(3, 9, 1) if pos is None else (pos >= 0)[..., None]
    loss = (out * real * torch.linspace(-1, 1, 16)).to(torch.float64).square().sum()
    return [out * real, *torch.autograd.grad(loss, [x, *block.parameters()])]


def assert_paths_agree(cell):
    block = block_of(cell).to(cell["dtype"])
    by_definition = copy.deepcopy(block)
    by_definition.fast = None
    x = torch.randn(3, 9, 16, dtype=cell["dtype"])
    for name, ours, defined in zip(
        ["output", "x", *dict(block.named_parameters())], run(block, cell, x), run(by_definition, cell, x), strict=True
    ):
        bound = TOLERANCE[cell["dtype"]] * max(1.0, defined.detach().abs().max().item())
        torch.testing.assert_close(ours, defined, atol=bound, rtol=0, msg=lambda m, n=name: f"{n}: {m}")
        assert defined.isfinite().all(), name
    # pieces through a cache equal one pass by definition
    whole = run(by_definition, {**cell, "pieces": 9}, x)[0]
    torch.testing.assert_close(run(block, cell, x)[0], whole, atol=2 * TOLERANCE[cell["dtype"]], rtol=0)


@pytest.mark.parametrize("cell", parts.pairs(**AXES, **WHERE), ids=parts.name)
def test_fast_equals_definition_in_value_and_gradient(cell):
    assert_paths_agree(cell)


@pytest.mark.parametrize("side", parts.PADDINGS)
def test_fast_equals_definition_under_autocast(side):
    cell = {"attention": "gqa", "position": "rope", "mask": "causal", "padding": side, "pieces": 9}
    block, x = block_of(cell), torch.randn(3, 9, 16)
    exact = run(block, cell, x)
    for fast in (block.fast, None):
        block.fast = fast
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = run(block, cell, x)
        for ours, defined in zip(rounded, exact, strict=True):
            bound = 6e-2 * max(1.0, defined.detach().abs().max().item())
            torch.testing.assert_close(ours.float(), defined, atol=bound, rtol=0)


def test_the_fast_path_is_left_when_it_computes_something_else():
    class Distance(Score):
        def forward(self, q, k):
            return -torch.cdist(q, k)

    class Even(Normalize):
        def forward(self, scores, visible):
            return visible.float().expand_as(scores) / visible.sum(-1, keepdim=True)

    make, x = parts.node().attention, torch.randn(1, 5, 16)
    for part in ({"score": Distance}, {"normalize": Even}):
        block = build(make, **part)(d_model=16, mask=Causal())
        assert block.fast is None
        with Tap(block, at=["q", "k", "v", "heads"]) as tap:
            parts.attend(block, x)
        q, k, v = tap["q"], tap["k"], tap["v"]
        hidden = torch.ones(5, 5).triu(1).bool()
        scores = -torch.cdist(q, k) if "score" in part else torch.zeros(1, 4, 5, 5)
        expected = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        torch.testing.assert_close(tap["heads"], expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("attention", AXES["attention"])
def test_fast_equals_definition_in_every_cell(attention):
    for cell in parts.product(**{**AXES, **WHERE, "attention": [attention]}):
        assert_paths_agree(cell)


@pytest.mark.parametrize("cell", parts.product(attention=AXES["attention"], position=AXES["position"]), ids=parts.name)
def test_every_pair_builds_unless_it_is_refused_by_name(cell):
    chosen = [f"model/{axis}={option}" for axis, option in cell.items()]
    if tuple(cell.values()) in REFUSED:
        with pytest.raises(ConfigError, match=r"position=.*attention="):
            parts.model("gpt_tiny", *chosen)
    else:
        parts.model("gpt_tiny", *chosen)


# --- against torch ---


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("mask", [Full(), Causal(), SlidingWindow(3)], ids=lambda m: type(m).__name__)
def test_reference_is_torchs_attention(mask, n_kv_heads):
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, n_kv_heads, 7, 8), torch.randn(2, n_kv_heads, 7, 6)
    i = torch.arange(7)
    allowed = {
        "Full": torch.ones(7, 7).bool(),
        "Causal": i[None] <= i[:, None],
        "SlidingWindow": (i[None] <= i[:, None]) & (i[:, None] - i[None] < 3),
    }[type(mask).__name__]
    bias = torch.randn(1, 4, 7, 7)
    where = {"mask": mask, "q_pos": i[None], "k_pos": i[None]}
    parts_of = {"score": ScaledDot(d_head=8, n_heads=4), "normalize": Softmax(n_heads=4)}
    for given in (None, bias):
        added = torch.zeros(7, 7) if given is None else given
        # heads repeated by hand: query head h reads key head h // (4 / n_kv_heads)
        repeated = [t[:, [h * n_kv_heads // 4 for h in range(4)]] for t in (k, v)]
        expected = F.scaled_dot_product_attention(
            q, *repeated, attn_mask=added.masked_fill(~allowed, float("-inf")).expand(2, 4, 7, 7)
        )
        ours, _ = attend_reference(q, k, v, **parts_of, **where, bias=given)
        torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)
        for plain in (True, False):
            fast = attend_sdpa(q, k, v, scale=8**-0.5, plain=plain, **where, bias=given)
            torch.testing.assert_close(fast, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("side", parts.PADDINGS)
def test_the_block_is_torchs_multihead_attention(side):
    block = parts.attention("model.attention.projection.bias=true", "model/mask=causal", scale=4)
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    p = block.projection
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.w_q.weight, p.w_k.weight, p.w_v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([p.w_q.bias, p.w_k.bias, p.w_v.bias]))
        theirs.out_proj.load_state_dict(p.w_o.state_dict())
    x, pos = torch.randn(2, 7, 16), parts.padded([7, 4], side)
    hidden = None if pos is None else pos < 0
    with Tap(block, at=["weights"]) as tap:
        ours = parts.attend(block, x, pos)
    expected, weights = theirs(
        x, x, x, key_padding_mask=hidden, attn_mask=torch.ones(7, 7).triu(1).bool(), average_attn_weights=False
    )
    real = torch.ones(2, 7).bool() if pos is None else pos >= 0
    torch.testing.assert_close(ours[real], expected[real], atol=1e-5, rtol=0)
    for row in range(2):
        torch.testing.assert_close(
            tap["weights"][row][:, real[row]], weights[row][:, real[row]], atol=1e-5, rtol=0
        )  # one matrix per head, never averaged
    assert ours.isfinite().all()


def test_a_fused_projection_is_a_loop_over_heads():
    block = parts.attention("model/attention=gqa", "model/mask=full", scale=4)
    x, p = torch.randn(2, 5, 16), block.projection
    heads = []
    for h in range(4):
        rows, group_rows = slice(4 * h, 4 * h + 4), slice(4 * (h // 2), 4 * (h // 2) + 4)
        q, k, v = x @ p.w_q.weight[rows].T, x @ p.w_k.weight[group_rows].T, x @ p.w_v.weight[group_rows].T
        heads.append((q @ k.mT / 2).softmax(-1) @ v)
    torch.testing.assert_close(parts.attend(block, x), torch.cat(heads, -1) @ p.w_o.weight.T, atol=1e-5, rtol=0)


# --- laws ---


@pytest.mark.parametrize(
    "cell",
    parts.pairs(
        **{**AXES, "mask": [m for m in AXES["mask"] if m != "full"]}, padding=parts.PADDINGS, fast=[True, False]
    ),
    ids=parts.name,
)
def test_nothing_later_or_padded_reaches_an_output(cell):
    block = block_of(cell)
    block.fast = block.fast if cell["fast"] else None
    x = torch.randn(3, 9, 16, requires_grad=True)
    pos = parts.padded([9, 5, 1], cell["padding"])
    out = parts.attend(block, x, pos, scheme=parts.position(cell["position"]))
    place = torch.arange(9).expand(3, 9) if pos is None else pos
    for row, column in ((0, 3), (1, 8), (1, 1), (2, 0)):
        (grad,) = torch.autograd.grad(out[row, column].sum(), x, retain_graph=True)
        reached = grad.abs().sum(-1) > 0
        allowed = (place >= 0) & (place <= place[row, column]) & (torch.arange(3)[:, None] == row)
        if place[row, column] < 0:
            # a place without a token reads nothing
            assert not reached.any()
        else:
            assert not (reached & ~allowed).any()
            # all weight may lie on other keys, and then a sparse normaliser has no slope either
            assert reached[row, column] or cell["normalize"] in ("sparsemax", "entmax15")


@pytest.mark.parametrize("attention", AXES["attention"])
def test_what_is_hidden_changes_no_bit(attention):
    block = block_of({"attention": attention, "mask": "causal"})
    x = torch.randn(2, 8, 16)
    changed = x.clone()
    changed[:, 5] = torch.randn(2, 16)
    before, after = parts.attend(block, x), parts.attend(block, changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])
    pos = parts.padded([8, 5], "left")
    padded = torch.where((pos < 0)[..., None], torch.randn(2, 8, 16), x)
    real = pos >= 0
    assert torch.equal(parts.attend(block, x, pos)[real], parts.attend(block, padded, pos)[real])


@pytest.mark.parametrize("attention", AXES["attention"])
def test_fewer_queries_than_keys_are_the_last_rows_of_the_square(attention):
    block = block_of({"attention": attention, "mask": "causal"})
    x = torch.randn(2, 8, 16)
    whole = parts.attend(block, x)
    for split in (7, 6, 3):
        cache = Dynamic()
        parts.attend(block, x[:, :split], cache=cache)
        rest = parts.attend(block, x[:, split:], cache=cache)
        torch.testing.assert_close(rest, whole[:, split:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", AXES["attention"])
def test_without_positions_the_order_of_keys_means_nothing(attention):
    block = block_of({"attention": attention, "mask": "full"})
    x, memory, order = torch.randn(2, 6, 16), torch.randn(2, 7, 16), torch.randperm(7)
    scheme = parts.position("none")

    def read(source):
        pos = torch.arange(6)[None]
        return block(x, pos=pos, plain=True, position=scheme, memory=source)

    torch.testing.assert_close(read(memory), read(memory[:, order]), atol=1e-5, rtol=0)
    mixed = torch.randperm(6)
    torch.testing.assert_close(parts.attend(block, x)[:, mixed], parts.attend(block, x[:, mixed]), atol=1e-5, rtol=0)


def test_packed_documents_read_as_if_alone():
    from minitf.positions import packed

    block = block_of({"attention": "gqa", "mask": "causal"})
    x, rope = torch.randn(1, 9, 16), parts.position("rope")
    together = parts.attend(block, x, packed([4, 5], 9)[None], scheme=rope)
    alone = [parts.attend(block, x[:, part], scheme=rope) for part in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(together, torch.cat(alone, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_padding_only_gives_zero_and_finite_gradients(fast, dtype):
    block = block_of({"attention": "gqa", "mask": "causal"}).to(dtype)
    block.fast = block.fast if fast else None
    x = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    pos = parts.padded([5, 0, 3], "right")
    with Tap(block, at=["heads", "weights"]) as tap:
        out = parts.attend(block, x, pos)
    assert not tap["heads"][1].any()
    assert not tap["weights"][1].any()
    out.float().square().sum().mul(1e4).backward()
    assert all(t.grad.isfinite().all() for t in (x, *block.parameters()))
    assert not x.grad[1].any()


# --- cross-attention ---


@pytest.mark.parametrize("attention", AXES["attention"])
@pytest.mark.parametrize("fast", [True, False])
def test_cross_attention_reads_all_of_a_padded_source_and_keeps_it(attention, fast):
    block = block_of({"attention": attention, "mask": "causal"})
    block.fast = block.fast if fast else None
    x, memory, memory_pos = torch.randn(3, 4, 16), torch.randn(3, 7, 16), parts.padded([7, 3, 0], "right")
    how = {
        "pos": torch.arange(4)[None],
        "plain": True,
        "position": NoPosition(d_model=16, d_head=4, n_heads=4, max_len=8, causal=True),
    }
    out = block(x, **how, memory=memory, memory_pos=memory_pos)
    p, source = block.projection, memory[1:2, :3]
    expected = p.out(F.scaled_dot_product_attention(p.q(x[1:2]), p.k(source), p.v(source), enable_gqa=True), x[1:2])
    torch.testing.assert_close(out[1:2], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(block(x[1:2], **how, memory=source), expected, atol=1e-5, rtol=0)
    assert not out[2].any()  # no source at all; w_o has no bias here

    cache = Dynamic()
    first = block(x[:, :3], **{**how, "pos": torch.arange(3)[None]}, memory=memory, memory_pos=memory_pos, cache=cache)
    # what is padded in the source is known from the cache; the memory's content is not read again
    last = block(x[:, 3:], **{**how, "pos": torch.tensor([[3]])}, memory=torch.zeros_like(memory), cache=cache)
    torch.testing.assert_close(torch.cat([first, last], 1), out, atol=1e-5, rtol=0)
    assert cache.n_seen == 7
    for other in (memory[:2], memory[:, :5]):
        with pytest.raises(ConfigError, match="holds 3 rows of 7 tokens"):
            block(x[: len(other)], **how, memory=other, cache=cache)


# --- weights, heads, dropout ---


def test_weights_are_one_matrix_per_head_before_dropout():
    block = parts.attention("model.attention.dropout=0.5", "model/mask=causal").train()
    x = torch.randn(2, 6, 16)
    for fast in (block.fast, None):
        block.fast = fast
        with Tap(block, at=["weights", "heads"]) as tap:
            parts.attend(block, x)
        weights = tap["weights"]
        assert weights.shape == (2, 4, 6, 6)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 6))
        assert not weights.triu(1).any()
    block.eval()
    torch.testing.assert_close(tap["weights"], _weights(block, x))


def _weights(block, x):
    with Tap(block, at=["weights"]) as tap:
        parts.attend(block, x)
    return tap["weights"]


def test_dropout_acts_in_training_only_and_keeps_the_mean():
    block = parts.attention("model.attention.dropout=0.3", "model/mask=causal", scale=2)
    x = torch.randn(1, 6, 16)
    expected = parts.attend(block, x)
    assert torch.equal(parts.attend(block, x), expected)
    block.train()
    for fast in (block.fast, None):
        block.fast = fast
        outs = torch.stack([parts.attend(block, x) for _ in range(800)])
        assert outs.std(0).min() > 0
        assert (outs.mean(0) - expected).abs().max() < 6 * outs.std(0).max() / 800**0.5


def test_a_head_is_switched_off_before_w_o_mixes_the_heads():
    block = parts.attention("model/attention=gqa", "model.attention.projection.bias=true", "model/mask=causal")
    x = torch.randn(2, 6, 16)
    with Tap(block, at=["heads"]) as tap:
        full = parts.attend(block, x)
    w_o = block.projection.w_o
    for head in range(4):
        with Tap(block, edit={"heads": zero_heads([head])}):
            without = parts.attend(block, x)
        # nn.Linear keeps (out, in): the rows of w_o that head h meets are columns here
        share = tap["heads"][:, head] @ w_o.weight[:, 4 * head : 4 * head + 4].T
        torch.testing.assert_close(without, full - share, atol=1e-5, rtol=0)
    with Tap(block, edit={"heads": zero_heads(range(4))}):
        torch.testing.assert_close(parts.attend(block, x), w_o.bias.expand(2, 6, 16))


# --- sizes ---


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.attention.n_kv_heads=3"], r"n_heads \(4\) must be a multiple of n_kv_heads \(3\)"),
        (["model.attention.n_heads=3"], r"d_model \(16\) must be a multiple of n_heads \(3\)"),
        (["model.attention.n_heads=0"], "n_heads must be a whole number of at least 1, got 0"),
        (["model.attention.n_kv_heads=-1"], "n_kv_heads must be"),
        (["model.attention.n_kv_heads=2.0"], "n_kv_heads must be"),
        (["model.attention.d_head=0"], "d_head must be"),
        (["model.attention.d_head=wide"], "d_head must be"),
        (["model.attention.dropout=1.0"], "attention dropout"),
        (["model.attention.dropout=-0.1"], "attention dropout"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_their_numbers(overrides, message):
    with pytest.raises(ConfigError, match=message):
        build(parts.node("gpt_tiny", *overrides))


def test_d_head_is_free_of_d_model():
    block = parts.attention("model.attention.n_heads=3", "model.attention.n_kv_heads=1", "model.attention.d_head=10")
    assert parts.attend(block, torch.randn(2, 5, 16)).shape == (2, 5, 16)
    assert block.projection.w_q.weight.shape == (30, 16)
    assert block.projection.w_k.weight.shape == (10, 16)
