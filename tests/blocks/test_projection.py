"""Every projection against a loop over heads, written without its code; keys that know the token before."""

import math

import parts
import pytest
import torch
import torch.nn.functional as F

from minitf.blocks.init.xavier import Xavier
from minitf.cache.dynamic import Dynamic
from minitf.config import build
from minitf.errors import ConfigError
from minitf.positions import SEGMENT, offset, packed
from minitf.tap import Tap

D = 16
NAMES = parts.options("model/attention/projection")
CUT = {"no_wq", "no_wq_tied_kv", "identity"}  # queries are x itself
TIED_KV = {"tied_kv", "no_wq_tied_kv"}
# (query heads, key/value heads, width of keys, width of values): all that a projection takes
SIZES = {
    name: [(4, 4, 4, 4), (1, 1, 16, 16)]
    + [(4, 2, 4, 4), (4, 1, 4, 4)] * (name not in {"tied_qk", "identity"})
    + [(2, 2, 8, 5)] * (name not in TIED_KV | {"identity"})
    + [(3, 3, 6, 6)] * (name not in CUT)
    + [(6, 2, 4, 3)] * (name in {"free", "gated", "mean", "smeared"})
    for name in NAMES
}
CELLS = [(name, sizes) for name in NAMES for sizes in SIZES[name]]


def block_of(name, sizes=(4, 4, 4, 4), *more, bias=False, mask="causal", scale=6.0):
    keys = ("n_heads", "n_kv_heads", "d_head", "d_value")
    chosen = [f"model.attention.{key}={size}" for key, size in zip(keys, sizes, strict=True)]
    chosen += [f"model/attention/projection={name}", f"model/mask={mask}"]
    if name != "identity":
        chosen.append(f"model.attention.projection.bias={bias}")
    return parts.attention(*chosen, *more, d_model=D, scale=scale)


def loop(name, sizes, p, x):
    """Causal attention of x to itself, head by head, from the matrices alone."""
    n_heads, n_kv_heads, d, d_value = sizes

    def part(matrix, head, width):
        rows = slice(head * width, (head + 1) * width)
        return x @ matrix.weight[rows].T + (0 if matrix.bias is None else matrix.bias[rows])

    heads = []
    for h in range(n_heads):
        g = h // (n_heads // n_kv_heads)
        own = x[..., h * d : (h + 1) * d]
        q = own if name in CUT else part(p.w_q, h, d)
        if name == "identity":
            k = v = own
        else:
            k = q if name == "tied_qk" else part(p.w_k, g, d)
            v = k if name in TIED_KV else part(p.w_v, g, d_value)
        if name == "smeared":
            s = 1 / (1 + math.exp(-p.alpha[g].item()))
            k = torch.stack([k[:, 0], *(s * k[:, j] + (1 - s) * k[:, j - 1] for j in range(1, k.size(1)))], 1)
        hidden = torch.ones(x.size(1), x.size(1)).triu(1).bool()
        read = (q @ k.mT / math.sqrt(d)).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        if name == "gated":
            read = read / (1 + (-part(p.w_gate, h, d_value)).exp())
        heads.append(read)
    merged = sum(heads) / n_heads if name == "mean" else torch.cat(heads, -1)
    if name == "identity":
        return merged
    return merged @ p.w_o.weight.T + (0 if p.w_o.bias is None else p.w_o.bias)


@pytest.mark.parametrize(("name", "sizes"), CELLS, ids=str)
def test_a_projection_is_its_loop_over_heads(name, sizes):
    x = torch.randn(2, 6, D)
    for bias in {False, name != "identity"}:
        block = block_of(name, sizes, bias=bias)
        expected = loop(name, sizes, block.projection, x)
        for fast in (block.fast, None):
            block.fast = fast
            torch.testing.assert_close(parts.attend(block, x), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "sizes"), CELLS, ids=str)
def test_a_projection_has_the_parameters_of_its_formula_and_uses_all(name, sizes):
    n_heads, n_kv_heads, d, d_value = sizes
    width = {"w_q": n_heads * d, "w_k": n_kv_heads * d, "w_v": n_kv_heads * d_value}
    gone = {
        "no_wq": {"w_q"},
        "tied_kv": {"w_v"},
        "tied_qk": {"w_k"},
        "no_wq_tied_kv": {"w_q", "w_v"},
        "identity": set(width),
    }
    expected = {n: (D + 1) * size for n, size in width.items() if n not in gone.get(name, set())}
    if name != "identity":
        expected["w_o"] = (d_value * (1 if name == "mean" else n_heads) + 1) * D
    if name == "gated":
        expected["w_gate"] = (D + 1) * n_heads * d_value
    if name == "smeared":
        expected["alpha"] = n_kv_heads
    block = block_of(name, sizes, bias=True)
    counted = {}
    for key, p in block.projection.named_parameters():
        counted[key.split(".")[0]] = counted.get(key.split(".")[0], 0) + p.numel()
    assert counted == expected
    parts.attend(block, torch.randn(2, 6, D, requires_grad=True)).square().sum().backward()
    assert all(p.grad.any() for p in block.projection.parameters())
    assert getattr(block.projection, "residual_output", None) is getattr(block.projection, "w_o", None)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("no_wq", (3, 3, 4, 4), r"n_heads x d_head \(3 x 4\) must be d_model \(16\): leave d_head null"),
        ("no_wq_tied_kv", (4, 4, 8, 8), r"n_heads x d_head \(4 x 8\) must be d_model \(16\)"),
        ("no_wq_tied_kv", (4, 4, 4, 5), r"d_value \(5\) must be d_head \(4\)"),
        ("tied_kv", (4, 4, 4, 5), r"d_value \(5\) must be d_head \(4\): leave d_value null"),
        ("tied_qk", (4, 2, 4, 4), r"n_kv_heads \(2\) must be n_heads \(4\): leave n_kv_heads null"),
        ("identity", (4, 2, 4, 4), r"n_kv_heads \(2\) must be n_heads \(4\)"),
        ("identity", (4, 4, 4, 8), r"d_value \(8\) must be d_head \(4\)"),
        ("identity", (2, 2, 4, 4), r"n_heads x d_head \(2 x 4\) must be d_model \(16\)"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(name, sizes, message):
    with pytest.raises(ConfigError, match=message) as error:
        block_of(name, sizes)
    assert str(error.value).endswith("or take projection=free")


@pytest.mark.parametrize(("name", "sizes"), CELLS, ids=str)
def test_slices_by_head_are_the_matrices(name, sizes):
    block = block_of(name, sizes)
    p, x = block.projection, torch.randn(2, 5, D)
    views = p.by_head()
    assert set(views) == {n for n, _ in p.named_children()} - ({"w_o"} if name == "mean" else set())
    made = {"w_q": p.q, "w_k": p.k, "w_v": p.v}
    for matrix in set(views) & set(made):
        torch.testing.assert_close(
            made[matrix](x), torch.einsum("btd,hed->bhte", x, views[matrix]), atol=1e-5, rtol=1e-5
        )
    if "w_o" in views and name != "gated":
        heads = torch.randn(2, sizes[0], 5, sizes[3])
        torch.testing.assert_close(
            p.out(heads, x), torch.einsum("bhte,hde->btd", heads, views["w_o"]), atol=1e-5, rtol=1e-5
        )
    with torch.no_grad():
        for view in views.values():
            view.zero_()
    assert not any(m.weight.any() for n, m in p.named_children() if n in views)


def test_a_gate_looks_at_the_reader_not_at_what_is_read():
    block = block_of("gated")
    x, memory, p = torch.randn(2, 4, D), torch.randn(2, 7, D), block.projection
    out = block(x, pos=torch.arange(4)[None], plain=True, position=parts.position(), memory=memory)
    heads = F.scaled_dot_product_attention(p.q(x), p.k(memory), p.v(memory)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out, (heads * (x @ p.w_gate.weight.T).sigmoid()) @ p.w_o.weight.T, atol=1e-5, rtol=1e-5)


# --- smeared keys ---


def smeared_by_hand(k, pos, alpha):
    """The token before is looked for by its position, not by its column."""
    out = k.clone()
    for b in range(k.size(0)):
        where = {int(place): column for column, place in enumerate(pos[b % len(pos)]) if place >= 0}
        for place, column in where.items():
            if place % SEGMENT > 0:
                for g, s in enumerate(alpha.sigmoid()):
                    out[b, g, column] = s * k[b, g, column] + (1 - s) * k[b, g, where[place - 1]]
    return out


@pytest.mark.parametrize(
    "pos",
    [
        torch.arange(9)[None],
        torch.arange(9)[None] + 5,  # as cached pieces of a longer text, whose start is not held
        parts.padded([9, 5, 1], "left"),
        parts.padded([9, 5, 1], "right"),
        packed([4, 1, 3], 9)[None],
    ],
    ids=["plain", "later", "left", "right", "packed"],
)
def test_a_smeared_key_is_mixed_with_the_key_of_the_token_before(pos):
    p = block_of("smeared", (4, 2, 4, 4)).projection
    k = torch.randn(3, 2, 9, 4)
    mixed = p.mix_keys(k, pos)
    if offset(pos).min() == 0:
        torch.testing.assert_close(mixed, smeared_by_hand(k, pos, p.alpha), atol=1e-6, rtol=0)
    else:
        assert torch.equal(mixed[:, :, 0], k[:, :, 0])
        torch.testing.assert_close(mixed, p.mix_keys(k, pos - 5), atol=0, rtol=0)
    assert not torch.allclose(mixed, k)
    assert p.mix_keys(k.bfloat16(), pos).dtype == torch.bfloat16
    assert [n for n in NAMES if block_of(n).projection.reads_previous] == ["smeared"]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scheme", ["none", "rope"])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_smeared_rows_padded_or_in_pieces_read_as_if_alone(side, scheme, size):
    block, x = block_of("smeared", (4, 2, 4, 4)), torch.randn(3, 9, D)
    lengths, scheme = [9, 5, 1], parts.position(scheme)
    pos, cache = parts.padded(lengths, side), Dynamic()
    out = torch.cat(
        [
            parts.attend(block, x[:, i : i + size], pos[:, i : i + size], cache if size < 9 else None, scheme)
            for i in range(0, 9, size)
        ],
        1,
    )
    for row, n in enumerate(lengths):
        real = pos[row] >= 0
        alone = parts.attend(block, x[row, real][None], scheme=scheme)
        torch.testing.assert_close(out[row, real][None], alone, atol=1e-5, rtol=1e-5, msg=f"row of {n}")


def test_smeared_documents_of_a_packed_row_and_a_padded_source_read_as_if_alone():
    block, x, rope = block_of("smeared"), torch.randn(1, 9, D), parts.position("rope")
    together = parts.attend(block, x, packed([4, 5], 9)[None], scheme=rope)
    alone = [parts.attend(block, x[:, part], scheme=rope) for part in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(together, torch.cat(alone, 1), atol=1e-5, rtol=1e-5)
    how = {"pos": torch.arange(9)[None], "plain": True, "position": rope}
    memory, memory_pos = torch.randn(1, 6, D), parts.padded([6, 4], "left")[1:]
    with Tap(block, at="k") as tap:
        padded = block(x, **how, memory=memory, memory_pos=memory_pos)
    torch.testing.assert_close(padded, block(x, **how, memory=memory[:, 2:]), atol=1e-5, rtol=1e-5)
    assert torch.equal(tap["k"][:, :, 2], block.projection.k(memory)[:, :, 2])


def test_smearing_starts_at_one_half_whatever_the_rule():
    block = build(parts.node("gpt_tiny", "model/attention/projection=smeared").attention)(
        d_model=D, mask=build(parts.node().mask)
    )
    Xavier()(block)
    assert torch.equal(block.projection.alpha, torch.zeros(4))
