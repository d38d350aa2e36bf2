import copy
import io

import parts
import pytest
import torch

from minitf.blocks.ffn.moe import unevenness
from minitf.config import build, compose
from minitf.errors import ConfigError


def moe(expert="gelu", **values):
    torch.manual_seed(0)
    node = compose(
        "model/gpt_tiny", [*parts.sizes("gpt_tiny"), "model/ffn=moe", f"model/ffn/expert={expert}"]
    ).model.ffn
    block = build(node)(d_model=6, **values)
    with torch.no_grad():
        for p in block.parameters():
            p.copy_(torch.randn_like(p))
    return block


@pytest.mark.parametrize("expert", parts.options("model/ffn/expert"))
@pytest.mark.parametrize(("n_experts", "top_k"), [(2, 2), (5, 2), (4, 3)])
def test_it_is_a_loop_over_tokens(expert, n_experts, top_k):
    block = moe(expert, n_experts=n_experts, top_k=top_k)
    x = torch.randn(3, 7, 6)
    by_hand = torch.zeros_like(x)
    for row in range(3):
        for t in range(7):
            ratings = block.router.weight @ x[row, t]
            chosen = ratings.argsort(descending=True)[:top_k]
            total = sum(ratings[e].exp() for e in chosen)
            for e in chosen:
                by_hand[row, t] += ratings[e].exp() / total * block.experts[e](x[row, t])
    torch.testing.assert_close(block(x), by_hand, atol=1e-4, rtol=1e-5)
    assert block.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


def test_a_token_never_depends_on_its_neighbours():
    block, x = moe().eval(), torch.randn(2, 5, 6)
    torch.testing.assert_close(block(x)[:1, 2:3], block(x[:1, 2:3]))
    x.requires_grad_()
    reached = torch.autograd.grad(block(x)[0, 2].sum(), x)[0].abs().sum(-1) > 0
    assert reached.nonzero().tolist() == [[0, 2]]


def test_the_balance_loss_is_balance_where_all_experts_are_chosen_alike():
    n, k = 4, 2
    even = torch.tensor([[0, 1], [2, 3]])
    assert unevenness(torch.zeros(2, n), even) == pytest.approx(1)
    one_pair = torch.tensor([[50.0, 50.0, 0.0, 0.0]]).expand(8, n)
    assert unevenness(one_pair, one_pair.topk(k).indices) == pytest.approx(n / k)
    ratings = torch.randn(8, n)
    chosen = ratings.topk(k).indices
    share = torch.stack([(chosen == e).sum() / (8 * k) for e in range(n)])
    assert unevenness(ratings, chosen) == pytest.approx((n * share * ratings.softmax(-1).mean(0)).sum().item())


def test_the_balance_loss_is_there_while_training_and_evens_the_choices():
    block, x = moe(balance=0.5).train(), torch.randn(4, 8, 6) + 1
    block(x)
    ratings = block.router(x.flatten(0, 1))
    assert block.aux_loss.item() == pytest.approx(0.5 * unevenness(ratings, ratings.topk(2).indices).item())
    before = block.aux_loss.item()
    optimizer = torch.optim.SGD([block.router.weight], lr=0.5)
    for _ in range(50):
        optimizer.zero_grad()
        block(x)
        block.aux_loss.backward()
        optimizer.step()
    assert block.aux_loss.item() < before - 0.05
    block.eval()(x)
    assert block.aux_loss is None
    unbalanced = moe(balance=0.0).train()
    unbalanced(x)
    assert unbalanced.aux_loss is None


def test_the_balance_loss_is_neither_copied_nor_stored():
    block = moe().train()
    block(torch.randn(2, 3, 6))
    assert block.aux_loss is not None
    assert copy.deepcopy(block).aux_loss is None
    file = io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).aux_loss is None
    assert not [key for key in block.state_dict() if "aux" in key]


def test_experts_that_nobody_chose_get_a_gradient_of_zero():
    block = moe(n_experts=8)
    block(torch.randn(1, 1, 6)).sum().backward()
    grads = {name: p.grad for name, p in block.named_parameters()}
    assert all(g is not None for g in grads.values())
    reached = {name.split(".")[1] for name, g in grads.items() if name.startswith("experts") and g.any()}
    assert len(reached) == 2
    assert grads["router.weight"].any()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_k": 1}, r"top_k \(1\) must be from 2 to n_experts \(4\)"),
        ({"top_k": 5}, r"top_k \(5\) must be from 2"),
        ({"n_experts": 0}, "n_experts must be a whole number"),
        ({"n_experts": 10**12}, "mixture of n_experts=1000000000000 has .* parameters"),
        ({"balance": -1.0}, "balance must be 0 or more"),
    ],
)
def test_what_a_mixture_cannot_be_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        moe(**values)
