"""What is captured is what ran, whatever the architecture, and listening changes nothing."""

import weakref

import parts
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minitf.analysis.capture import all_heads, capture
from minitf.analysis.forward import positions, run
from minitf.analysis.sites import sites
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy
from minitf.positions import packed
from minitf.tap import Tap

PRESETS = [name for name in parts.options("model") if name != "gru_none"]


def small(name, *overrides):
    own = parts.node(name)
    dropout = ["model.dropout=0.1"] if "dropout" in own else []
    dropout += ["model.attention.dropout=0.2"] if "dropout" in own.get("attention", {}) else []
    return parts.model(name, *dropout, *overrides, scale=4)


def batch_of(model, padding="right"):
    torch.manual_seed(3)
    batch = {"ids": torch.randint(65, (2, 8))}
    if (pos := parts.padded([8, 5], padding)) is not None:
        batch["pos"] = pos
    if hasattr(model, "encode"):
        batch["src"] = torch.randint(65, (2, 6))
        if (pos := parts.padded([6, 4], padding)) is not None:
            batch["src_pos"] = pos
    return batch


def passed(model, batch):
    """Output and gradients of one pass from one seed."""
    torch.manual_seed(1)
    out = run(model, batch)
    found = torch.autograd.grad(out[out.isfinite()].square().sum(), list(model.parameters()), allow_unused=True)
    return [out, *(g for g in found if g is not None)]


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", PRESETS)
def test_reading_every_weight_changes_no_bit(name, training):
    model = small(name).train(training)
    batch = batch_of(model)
    bare = passed(model, batch)
    with Tap(model, at="*.weights") as tap:
        listened = passed(model, batch)
    assert len(tap.values) == len(sites(model)) > 0
    assert all(torch.equal(a, b) for a, b in zip(bare, listened, strict=True))
    state = {k: v.clone() for k, v in model.state_dict().items()}
    list(capture(model, batch, outputs=True))
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(bare, passed(model, batch), strict=True))
    assert model.training == training


@pytest.mark.parametrize("name", ["llama_tiny", "encdec_tiny"])
@pytest.mark.parametrize("cached", [False, True])
def test_reading_changes_no_bit_of_generation(name, cached):
    model = small(name)
    batch = batch_of(model, "left")
    source = {"memory": model.encode(batch["src"]), "memory_pos": None} if "src" in batch else {}

    def steps(weights):
        caches = model.new_caches(Dynamic) if cached else None
        how = {"sampler": Greedy(), "max_new_tokens": 4, "caches": caches, "weights": weights, **source}
        return list(generate(model, batch["ids"], pos=batch["pos"], **how))

    for bare, listened in zip(steps(()), steps("*.weights"), strict=True):
        assert torch.equal(bare.logprobs, listened.logprobs)
        assert len(listened.weights) == len(sites(model)) - (2 if source else 0)  # the encoder has run before


@pytest.mark.parametrize("padding", parts.PADDINGS)
@pytest.mark.parametrize("name", PRESETS)
def test_captured_is_what_a_tap_reads(name, padding):
    model = small(name)
    batch = batch_of(model, padding)
    points = [n for n in Tap.names(model) if n.endswith((".weights", ".v", ".heads"))]
    with torch.no_grad(), Tap(model, at=points) as tap:
        run(model, batch)
    found = list(capture(model, batch, outputs=True))
    assert [one.site for one in found] == sites(model)
    for one in found:
        weights = tap[one.site.point("weights")]
        assert torch.equal(one.weights, weights)
        assert one.weights.dtype == torch.float32
        q_pos, k_pos = positions(batch, one.site.kind)
        assert torch.equal(tap.key_positions[one.site.point("weights")].expand_as(one.k_pos), k_pos)
        assert torch.equal(one.q_pos, q_pos)
        assert not one.weights[~one.visible[:, None].expand_as(weights)].any()
        assert torch.equal(one.visible.any(1), k_pos >= 0)  # a real key is seen by somebody, padding by nobody
        if one.value_norms is not None:
            v = tap[one.site.point("v")]
            each = v.norm(dim=-1).repeat_interleave(one.site.n_heads // v.size(1), 1)
            torch.testing.assert_close(one.value_norms, each)
            assert torch.equal(one.outputs, tap[one.site.point("heads")])


def test_visible_is_what_the_mask_says_also_in_packed_rows():
    model = small("gpt_tiny", "model/mask=sliding_window", "model.mask.window=2")
    batch = {"ids": torch.randint(65, (1, 7)), "pos": packed([3, 3], 7)[None]}
    rows = next(capture(model, batch)).visible[0].int().tolist()
    assert rows == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("name", ["llama_tiny", "encdec_tiny"])
def test_pieces_and_chosen_heads_give_the_same(name):
    model = small(name)
    batch = batch_of(model)
    whole = {one.site: one for one in capture(model, batch, outputs=True)}
    for max_bytes, n in ((1, 2), (2**20, 1)):
        found = list(capture(model, batch, outputs=True, max_bytes=max_bytes))
        assert len(found) == n * len(whole)
        for one in found:
            full = whole[one.site]
            for key in ("weights", "visible", "q_pos", "k_pos", "value_norms", "outputs"):
                torch.testing.assert_close(getattr(one, key), getattr(full, key)[one.rows], atol=1e-5, rtol=1e-5)
    site = sites(model)[-1]
    (one,) = capture(model, batch, {site: [3, 1]}, outputs=True)
    assert one.heads == (3, 1)
    assert torch.equal(one.weights, whole[site].weights[:, [3, 1]])
    assert torch.equal(one.value_norms, whole[site].value_norms[:, [3, 1]])
    assert torch.equal(one.outputs, whole[site].outputs[:, [3, 1]])


def test_weights_are_those_before_dropout():
    model = parts.model("gpt_tiny", "model.attention.dropout=0.5", scale=4).train()
    batch = batch_of(model)
    with Tap(model, at="*.weights") as tap:
        run(model, batch)
    for one in capture(model, batch):
        weights = tap[one.site.point("weights")]
        real = one.q_pos >= 0
        torch.testing.assert_close(weights.sum(-1).transpose(1, 2)[real], torch.ones(13, 4))
        torch.testing.assert_close(one.weights.sum(-1).transpose(1, 2)[real], torch.ones(13, 4))
    # nor do those of later layers depend on what was dropped before: captured is what the model does in evaluation
    while_training = [one.weights for one in capture(model, batch)]
    assert all(torch.equal(a, b.weights) for a, b in zip(while_training, capture(model.eval(), batch), strict=True))


class Live(TorchDispatchMode):
    """The most bytes of tensors that were alive at a time."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor):
                storage = t.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self.forget, storage._cdata, storage.nbytes())
        return out

    def forget(self, key, n):
        self.known.discard(key)
        self.now -= n


def most_bytes(model, batch, **how):
    with Live() as live:
        for one in capture(model, batch, **how):
            del one
    return live.most


def test_memory_is_bounded_whatever_the_batch():
    model = parts.model("gpt_tiny", "model.n_layers=4", "model.max_len=64")
    batch = {"ids": torch.randint(65, (8, 64))}
    square = 4 * 4 * 64 * 64  # bytes of the weights of a row and layer
    unbounded = most_bytes(model, batch)
    assert unbounded > 8 * 4 * square
    for n in (10, 20):  # squares, of which a row takes about 8
        assert 0.6 * n * square < most_bytes(model, batch, max_bytes=n * square) < n * square
    assert most_bytes(model, batch, max_bytes=1) < 6 * square  # a row of one site at a time
    one_head = most_bytes(model, batch, heads={sites(model)[3]: [0]}, max_bytes=2**30)
    assert one_head < unbounded / 1.5
    with pytest.raises(ConfigError, match="max_bytes"):
        capture(model, batch, max_bytes=0)


def test_heads_that_do_not_exist_are_named():
    model = parts.model()
    site = sites(model)[1]
    with pytest.raises(ConfigError, match=r"1\.4 does not exist: layers\.1\.attention has heads 0 to 3"):
        capture(model, batch_of(model), {site: [4]})
    assert all_heads(model)[site] == (0, 1, 2, 3)
    assert list(capture(model, batch_of(model), {site: []})) == []


def test_a_tap_keeps_what_it_is_told_while_the_model_goes_on():
    model = parts.model("gpt_tiny", scale=4)
    ids = torch.randint(65, (2, 8))
    with Tap(model, at="*.weights") as whole:
        out = model(ids)
    seen = []

    def keep(name, value):
        seen.append(name)
        assert not value.requires_grad
        return value[:, 1].sum()

    with Tap(model, at="*.weights", keep=keep) as tap:
        assert torch.equal(model(ids), out)
    assert seen == list(whole.values)
    for name, value in tap.values.items():
        assert value == whole[name][:, 1].sum()
    # an outer tap keeps all
    with Tap(model, at="*.weights") as outer, Tap(model, at="*.weights", keep=keep):
        model(ids)
    assert all(torch.equal(outer[name], value) for name, value in whole.values.items())
