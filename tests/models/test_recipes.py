"""Layers of one stack that differ: recipes, and the pattern that gives each layer one."""

import parts
import pytest
import torch
from omegaconf import OmegaConf

from minitf.cache.dynamic import Dynamic
from minitf.config import build
from minitf.errors import ConfigError
from minitf.tap import Tap


def reach(model, n=12):
    """The tokens whose change reaches the last one's residual after the first layer."""
    ids = torch.randint(65, (1, n))
    rows = torch.cat([ids, torch.where(torch.eye(n).bool(), (ids + 1) % 65, ids)])  # row t + 1 differs at token t
    with Tap(model, at="layers.0.resid_out") as tap:
        model(rows)
    last = tap["layers.0.resid_out"][:, -1]
    return [t for t in range(n) if not torch.allclose(last[0], last[t + 1], atol=1e-6)]


def mixed(*overrides, pattern=("local", "global"), **recipes):
    node = parts.node("mixed_tiny", "model.recipes.local.mask.window=3", *overrides)
    node.pattern = list(pattern)
    node.recipes = {**node.recipes, **recipes}
    return OmegaConf.to_container(node)


@torch.no_grad()
def test_a_local_layer_reads_a_window_and_a_global_one_everything():
    model = build(mixed())
    assert [getattr(layer.attention.mask, "window", None) for layer in model.layers] == [3, None]
    local, swapped = build(mixed()), build(mixed(pattern=("global", "local")))
    assert reach(local) == [9, 10, 11]
    assert reach(swapped) == list(range(12))
    assert not model.sees_future


@torch.no_grad()
def test_recipes_that_change_nothing_change_nothing():
    plain = build(mixed() | {"recipes": {}, "pattern": []})
    same = build(mixed(pattern=("local", "global")) | {"recipes": {"local": {"mask": parts.node("gpt_tiny").mask}}})
    same.load_state_dict(plain.state_dict())
    ids = torch.randint(65, (2, 8))
    assert torch.equal(same(ids), plain(ids))


def test_any_part_can_differ_and_none_is_shared():
    other = parts.node("gpt_tiny")
    special = {"ffn": other.ffn, "norm": other.norm, "attention": other.attention, "layer": other.layer}
    special["position"] = parts.node("gpt_tiny", "model/position=rope").position
    node = mixed("model.n_layers=4", pattern=("local", "special"), special=special)
    model = build(node)
    kinds = [[type(m).__name__ for m in (layer.ffn, layer.ffn_norm, layer.position)] for layer in model.layers]
    assert kinds == [["SwiGLU", "RMSNorm", "NoneType"], ["GELU", "LayerNorm", "Rope"]] * 2
    assert [layer.attention.n_kv_heads for layer in model.layers] == [2, 4, 2, 4]
    assert model.layers[1].position is not model.layers[3].position
    ids = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
    assert len(ids) - len(set(ids)) == 1  # the tied table
    model(torch.randint(65, (2, 8))).square().sum().backward()
    assert all(p.grad.any() for p in model.parameters())


@torch.no_grad()
def test_pieces_equal_one_pass():
    torch.manual_seed(0)
    model, ids = build(mixed()).eval(), torch.randint(65, (2, 9))
    caches = model.new_caches(Dynamic)
    pieces = [model(ids[:, a:b], None, caches) for a, b in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids), atol=1e-5, rtol=0)


def test_a_mask_that_sees_later_tokens_in_one_layer_makes_the_model_see_them():
    full = parts.node("gpt_tiny", "model/mask=full").mask
    model = build(mixed(pattern=("local", "open"), open={"mask": full}))
    assert model.sees_future
    with pytest.raises(ConfigError, match="without caches"):
        model(torch.randint(65, (1, 4)), None, model.new_caches(Dynamic))


CAUSAL = {"_target_": "minitf.blocks.mask.causal.Causal"}
RELU = {"_target_": "minitf.blocks.ffn.relu.ReLU", "_partial_": True}


@pytest.mark.parametrize(
    ("pattern", "recipes", "message"),
    [
        (
            ("local", "a"),
            {"a": {"mark": 1}},
            r"recipe 'a' has \['mark'\]; here a recipe can hold attention, position, mask",
        ),
        (("local", "global", "global"), {}, r"a pattern of 3 layers does not fill n_layers \(2\)"),
        (("global",), {}, r"no layer uses the recipe \['local'\]: name it in the pattern"),
        ((), {}, r"no layer uses the recipe \['local'\]"),
        (("local", "a"), {"a": {"position": "learned"}}, "position=Learned is added to the embedding.*rope or alibi"),
        (("local", "a"), {"a": {"position": "sinusoidal"}}, "position=Sinusoidal is added to the embedding"),
        (("local", "a"), {"a": {"cross_attention": 1}}, r"has \['cross_attention'\]; here a recipe can hold"),
        (("local", "a"), {"a": {"mask": None}}, "recipe 'a' names None as its mask: choose an option of model/mask"),
        (("local", "a"), {"a": {"mask": RELU}}, "recipe 'a' names ReLU as its mask"),
        (("local", "a"), {"a": {"ffn": CAUSAL}}, "recipe 'a' names Causal as its ffn: choose an option of model/ffn"),
        (("local", "a"), {"a": {"norm": RELU}}, "recipe 'a' names ReLU as its norm"),
        (("local", "a"), {"a": None}, "recipe 'a' is a NoneType, not parts by name"),
        (("local", 3), {}, "a pattern is a list of names of recipes, got 3 in it"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(pattern, recipes, message):
    for recipe in recipes.values():
        if recipe and "position" in recipe:
            recipe["position"] = parts.node("gpt_tiny", f"model/position={recipe['position']}").position
    with pytest.raises(ConfigError, match=message):
        build(mixed(pattern=pattern, **recipes))
