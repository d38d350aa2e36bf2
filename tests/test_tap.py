import timeit

import parts
import pytest
import torch

from minitf.cache.dynamic import Dynamic
from minitf.tap import Tap, Tappable, zero_heads

CELLS = {
    "attention": parts.attentions(),
    "position": parts.options("model/position"),
    "mask": parts.options("model/mask"),
    "layer": parts.options("model/layer"),
    "ffn": [name for name in parts.options("model/ffn") if name != "none"],
    "training": [False, True],
    "attention_dropout": [0.0, 0.2],
    "padding": list(parts.PADDINGS),
}


def of(cell):
    chosen = [f"model/{axis}={cell[axis]}" for axis in ("attention", "position", "mask", "layer", "ffn")]
    dropout = ["model.dropout=0.1", f"model.attention.dropout={cell['attention_dropout']}"]
    return parts.model("gpt_tiny", *chosen, *dropout, scale=8)


def passed(model, cell, ids):
    """Output and all gradients of one pass from one seed."""
    torch.manual_seed(1)
    out = model(ids, parts.padded([8, 5], cell["padding"]))
    return [out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("cell", parts.some_by_default(parts.pairs(**CELLS), 2), ids=parts.name)
def test_listening_changes_no_bit(cell):
    model, ids = of(cell).train(cell["training"]), torch.randint(65, (2, 8))
    bare = passed(model, cell, ids)
    with Tap(model, at=["*"]) as tap:
        listened = passed(model, cell, ids)
    assert set(tap.values) == set(Tap.names(model))
    with Tap(model, edit={"*": lambda x: x}):
        edited = passed(model, cell, ids)
    for a, b, c in zip(bare, listened, edited, strict=True):
        assert torch.equal(a, b)
        # editing scores takes the reference path, which is equal, but not bit for bit and drops other weights
        if not (cell["training"] and cell["attention_dropout"]):
            torch.testing.assert_close(c, a, atol=1e-5 * max(1, a.detach().abs().max().item()), rtol=0)
    with Tap(
        model, edit={"*.q": lambda x: x, "*.heads": lambda x: x, "*.resid_*": lambda x: x, "*.hidden": lambda x: x}
    ):
        assert all(torch.equal(a, b) for a, b in zip(bare, passed(model, cell, ids), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(bare, passed(model, cell, ids), strict=True))


def test_listening_changes_no_bit_under_autocast():
    model, ids, pos = (
        parts.model("llama_tiny", scale=8).train(),
        torch.randint(65, (2, 8)),
        parts.padded([8, 5], "left"),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16), Tap(model, at=["*"]) as tap:
        listened = model(ids, pos)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(model(ids, pos), listened)
    assert tap["layers.0.attention.weights"].dtype == torch.float32


def test_what_is_read_is_what_ran():
    model, ids = parts.model("llama_tiny", scale=8), torch.randint(65, (2, 8))
    with Tap(model, at=["*"]) as tap:
        model(ids)
    for i in (0, 1):
        prefix = f"layers.{i}.attention."
        q, k, v, scores, weights, heads = (tap[prefix + p] for p in ("q", "k", "v", "scores", "weights", "heads"))
        assert q.shape == (2, 4, 8, 4)
        assert k.shape == v.shape == (2, 2, 8, 4)  # the two heads that a cache would keep
        assert scores.shape == weights.shape == (2, 4, 8, 8)
        # keys as they are scored, so after rotation
        torch.testing.assert_close(scores, q @ k.repeat_interleave(2, 1).mT / 2, atol=1e-4, rtol=0)
        hidden = torch.ones(8, 8).triu(1).bool()
        torch.testing.assert_close(weights, scores.masked_fill(hidden, float("-inf")).softmax(-1))
        torch.testing.assert_close(heads, weights @ v.repeat_interleave(2, 1), atol=1e-5, rtol=0)
        assert tap[f"layers.{i}.ffn.hidden"].shape == (2, 8, 48)
        assert not any(t.requires_grad for t in tap.values.values())
    assert torch.equal(tap["layers.0.resid_out"], tap["layers.1.resid_in"])
    assert torch.equal(model.head(model.final_norm(tap["layers.1.resid_out"])), model(ids))


def test_weights_of_cached_steps_have_one_row():
    model, ids = parts.model("llama_tiny", scale=8), torch.randint(65, (2, 8))
    caches = model.new_caches(Dynamic)
    model(ids[:, :7], None, caches)
    with Tap(model, at=["*.weights"]) as tap:
        model(ids[:, 7:], None, caches)
    step = tap["layers.1.attention.weights"]
    with Tap(model, at=["*.weights"]) as tap:
        model(ids)
    assert step.shape == (2, 4, 1, 8)
    torch.testing.assert_close(step, tap["layers.1.attention.weights"][:, :, 7:], atol=1e-5, rtol=0)


def test_an_edit_reaches_its_own_layer_only_and_goes_on():
    model, ids = parts.model("gpt_tiny", scale=8), torch.randint(65, (2, 8))
    names = ["*.heads", "*.weights", "*.resid_out"]
    with Tap(model, at=names) as bare:
        before = model(ids)
    with Tap(model, at=names, edit={"layers.1.attention.heads": zero_heads([3])}) as tap:
        after = model(ids)
    assert torch.equal(tap["layers.0.resid_out"], bare["layers.0.resid_out"])
    assert torch.equal(tap["layers.1.attention.weights"], bare["layers.1.attention.weights"])
    heads = tap["layers.1.attention.heads"]
    assert not heads[:, 3].any()
    assert torch.equal(heads[:, :3], bare["layers.1.attention.heads"][:, :3])
    assert not torch.equal(before, after)
    # patching: the activation of one run put into another gives back the first run
    with Tap(model, edit={"layers.1.resid_out": lambda x: bare["layers.1.resid_out"]}):
        assert torch.equal(model(ids.flip(0)), before)


def test_edited_weights_are_the_weights_that_are_used():
    model, ids = parts.model("gpt_tiny", scale=8), torch.randint(65, (1, 6))

    def own(weights):
        return torch.eye(6).expand_as(weights)

    with Tap(model, at=["*.v", "*.heads", "*.weights"], edit={"*.weights": own}) as tap:
        model(ids)
    torch.testing.assert_close(tap["layers.0.attention.heads"], tap["layers.0.attention.v"])
    assert torch.equal(tap["layers.0.attention.weights"][0, 0], torch.eye(6))

    def no_first_key(scores):
        scores = scores.clone()
        scores[..., 0] = float("-inf")
        return scores

    with Tap(model, at=["*.weights"], edit={"layers.0.attention.scores": no_first_key}) as tap:
        out = model(ids)
    weights = tap["layers.0.attention.weights"]
    assert not weights[..., 0].any()
    torch.testing.assert_close(weights[:, :, 1:].sum(-1), torch.ones(1, 4, 5))
    assert out.isfinite().all()


def test_nested_taps_see_the_same_and_close_in_any_state():
    model, ids = parts.model("gpt_tiny", scale=8), torch.randint(65, (1, 6))
    bare, name = model(ids), "layers.0.attention.heads"
    with Tap(model, at=[name], edit={name: lambda x: x + 1}) as outer:
        with Tap(model, at=[name], edit={name: lambda x: x * 3}) as inner:
            model(ids)
            assert torch.equal(outer[name], inner[name])
            both = inner[name]
        model(ids)
        torch.testing.assert_close(both, outer[name] * 3)
    assert torch.equal(model(ids), bare)

    def broken(x):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), Tap(model, at=["*"], edit={name: broken}):
        model(ids)
    assert torch.equal(model(ids), bare)
    assert all(m.tap is None for m in model.modules() if hasattr(m, "tap"))


def test_one_tap_opens_again_but_not_inside_itself():
    model, ids = parts.model(), torch.randint(65, (1, 6))
    tap = Tap(model, at=["*.q"])
    for _ in range(2):
        with tap:
            model(ids)
            with pytest.raises(RuntimeError, match="open already"), tap:
                pass
            assert model.layers[0].attention.tap is not None
    assert model.layers[0].attention.tap is None


def test_names_that_do_not_exist_are_named_with_the_nearest():
    model = parts.model()
    assert len(Tap.names(model)) == 2 * (6 + 1 + 3)
    for how in ({"at": ["layers.1.attention.weight"]}, {"edit": {"layers.1.attention.weight": lambda x: x}}):
        with pytest.raises(KeyError, match=r"nearest: .*layers\.1\.attention\.weights"):
            Tap(model, **how)
    with pytest.raises(KeyError, match=r"layers\.7\.ffn\.hidden"):
        Tap(model, at=["layers.7.ffn.hidden"])
    with Tap(model, at=["*.q"]) as tap, pytest.raises(KeyError, match=r"nothing was read at .*attention\.k"):
        tap["layers.0.attention.k"]


def test_a_block_alone_has_plain_names():
    block, x = parts.attention(), torch.randn(1, 5, 16)
    with Tap(block, at=["weights"]) as tap:
        parts.attend(block, x)
    assert list(tap.values) == ["weights"]


def test_edits_that_cannot_be_meant_are_refused():
    model, ids = parts.model(), torch.randint(65, (2, 6))
    for head in (4, -1):
        edit = {"layers.0.attention.heads": zero_heads([head])}
        with pytest.raises(IndexError, match=rf"head {head} does not exist: .* 0 to 3"), Tap(model, edit=edit):
            model(ids)
    for change in (lambda x: None, lambda x: x[:, :1], lambda x: 0.0):
        edit = {"layers.0.attention.weights": change}
        with pytest.raises(ValueError, match=r"weights' must return the shape \(2, 4, 6, 6\)"), Tap(model, edit=edit):
            model(ids)


def test_a_tap_that_is_off_costs_less_than_two_percent_of_a_step(monkeypatch):
    """Counts the questions `self.tap is None` of one forward pass of a very small model, and times them alone."""
    model = parts.model("gpt_tiny", scale=8)
    ids = torch.zeros(2, 8, dtype=torch.int64)
    asked = []

    class Counted:
        def __get__(self, module, kind):
            asked.append(module)

    with monkeypatch.context() as patch:
        patch.setattr(Tappable, "tap", Counted())
        model(ids)
    assert len(asked) > 4  # in each layer, its attention, its feed-forward network
    modules = list(asked)

    def questions():
        for module in modules:
            if module.tap is not None:
                raise AssertionError

    alone, step = (min(timeit.repeat(call, number=20, repeat=7)) for call in (questions, lambda: model(ids)))
    assert alone < 0.02 * step
