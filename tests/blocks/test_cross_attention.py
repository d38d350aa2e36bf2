"""Attention to another sequence: all of it is visible, and it is read once."""

import parts
import pytest
import torch
import torch.nn.functional as F
from matrix import AXES

from minitf.blocks.position.none import NoPosition
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError


@pytest.mark.parametrize("attention", AXES["attention"])
@pytest.mark.parametrize("fast", [True, False])
def test_cross_attention_reads_all_of_a_padded_source_and_keeps_it(attention, fast):
    block = parts.attention(f"model/attention={attention}", "model/mask=causal")
    block.fast = block.fast if fast else None
    x, memory, memory_pos = torch.randn(3, 4, 16), torch.randn(3, 7, 16), parts.padded([7, 3, 0], "right")
    how = {
        "pos": torch.arange(4)[None],
        "plain": True,
        "position": NoPosition(d_model=16, d_head=4, n_heads=4, max_len=8, causal=True),
    }
    out = block(x, **how, memory=memory, memory_pos=memory_pos)
    p, source = block.projection, memory[1:2, :3]
    q, (k, v) = block.queries(x[1:2]), block.expand(block.entries(source))
    expected = p.out(F.scaled_dot_product_attention(q, k, v, enable_gqa=True), x[1:2])
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
