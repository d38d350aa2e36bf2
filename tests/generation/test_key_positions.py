"""Weights that generation gives out say which token each key is, in whatever order a cache keeps them."""

import parts
import pytest
import torch

from minitf.cache.dynamic import Dynamic
from minitf.cache.static import Static
from minitf.cache.window import Window
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy
from minitf.positions import from_real
from minitf.tap import Listener, Tap

NEW, LENGTHS = 9, [5, 1, 3]
ROPE, NONE, MLA = "model/position=rope", "model/position=none", "model/attention=mla"
NEAR = ["model/mask=window_sinks", "model.mask.window=3"]
CASES = {
    "no cache": ([ROPE], None, None),
    "dynamic": ([ROPE], Dynamic, 2),
    "static": ([ROPE], Static, None),
    "latent": ([ROPE, MLA], Dynamic, None),
    "window": ([ROPE, *NEAR, "model.mask.n_sink=2"], lambda: Window(3, 2), None),
    "window with room": ([ROPE, *NEAR, "model.mask.n_sink=1"], lambda: Window(3, 1, spare=2), 2),
    "window of latents": ([ROPE, MLA, *NEAR, "model.mask.n_sink=2"], lambda: Window(3, 2), None),
    # where these equal one full pass: distances between tokens stay, or nothing but the order is read
    "streaming": ([ROPE, *NEAR, "model.mask.n_sink=0"], lambda: Window(3, renumber=True), None),
    "streaming with sinks": ([NONE, *NEAR, "model.mask.n_sink=2"], lambda: Window(3, 2, renumber=True), None),
}
NAMES = ["layers.*.attention.weights"]


def by_position(weights, positions, n):
    """(B,H,T,S) -> (B,H,T,n): the weight that the token at each position gets; keys that are no token have none."""
    index = torch.where(positions < 0, n, positions)[:, None, None].expand_as(weights)
    found = weights.new_zeros(*weights.shape[:-1], n + 1).scatter_add(-1, index, weights)
    assert not found[..., n].any()
    return found[..., :n]


def check_steps(model, names, ids, pos, steps, **source):
    """Each step's weights are the last row of a full pass over its text, without a cache."""
    for n, step in enumerate(steps):
        before = torch.stack([s.ids for s in steps[:n]], 1) if n else ids[:, :0]
        real = torch.cat([pos >= 0, torch.ones(before.shape, dtype=torch.bool)], 1)
        with Tap(model, at=names) as tap:
            model.step(torch.cat([ids, before], 1), from_real(real), **source)
        assert set(step.weights) == set(step.key_positions) == set(tap.key_positions)
        for name, weights in step.weights.items():
            end = int(max(step.key_positions[name].max(), tap.key_positions[name].max())) + 1
            whole = by_position(tap[name][:, :, -1:], tap.key_positions[name], end)
            ours = by_position(weights, step.key_positions[name], end)
            torch.testing.assert_close(ours, whole, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_weights_by_key_position_are_those_of_a_full_pass(case, padded):
    overrides, make, chunk = CASES[case]
    model = parts.model("gpt_tiny", "model.tie_embeddings=false", *overrides, scale=5)
    ids, pos = torch.randint(65, (3, 5)), parts.padded(LENGTHS, "left") if padded else torch.arange(5).expand(3, -1)
    caches = None if make is None else model.new_caches(make)
    how = {"caches": caches, "prefill_chunk": chunk, "pos": pos if padded else None}
    steps = list(generate(model, ids, sampler=Greedy(), max_new_tokens=NEW, weights=NAMES, **how))
    check_steps(model, NAMES, ids, pos, steps)
    if make is not None and "window" in case:
        last = steps[-1].key_positions["layers.0.attention.weights"]
        assert any(row[row >= 0].diff().min() < 0 for row in last), "a ring that never turned would prove little"


@torch.no_grad()
@pytest.mark.parametrize("preset", ["encdec_tiny", "bahdanau", "luong"])
def test_keys_of_a_source_are_its_tokens(preset):
    model = parts.model(preset, "model.tie_embeddings=false", scale=3)
    names = [name for name in Tap.names(model) if name.endswith("attention.weights") and "encoder" not in name[:8]]
    ids, pos, src_pos = torch.randint(65, (3, 5)), parts.padded(LENGTHS, "left"), parts.padded([4, 9, 6], "left")
    source = {"memory": model.encode(torch.randint(65, (3, 9)), src_pos), "memory_pos": src_pos}
    how = {"sampler": Greedy(), "max_new_tokens": 4, "weights": names, "pos": pos, **source}
    for caches in (None, model.new_caches(Static)):
        steps = list(generate(model, ids, caches=caches, **how))
        check_steps(model, names, ids, pos, steps, **source)
        of_source = [name for name in names if "cross" in name or preset != "encdec_tiny"]
        assert of_source
        assert all(torch.equal(steps[2].key_positions[name], src_pos) for name in of_source)


def test_where_a_table_was_outgrown_positions_count_from_the_start_that_is_told():
    model = parts.model("gpt_tiny", "model/position=learned", "model.max_len=6", scale=5)
    ids, pos = torch.randint(65, (2, 5)), parts.padded([5, 2], "left")
    how = {"sampler": Greedy(), "max_new_tokens": 7, "pos": pos, "weights": NAMES}
    for caches in (None, model.new_caches(Dynamic)):
        steps = list(generate(model, ids, caches=caches, **how))
        assert [step.starts for step in steps] == [[0, 0], [0, 0], [3, 0], [3, 0], [3, 0], [6, 3], [6, 3]]
        for n, step in enumerate(steps):
            newest = step.key_positions["layers.1.attention.weights"].amax(-1)
            assert (newest + torch.tensor(step.starts)).tolist() == [4 + n, 1 + n]  # the last token that was read


def test_nothing_is_kept_or_computed_for_who_does_not_ask(monkeypatch):
    model, ids = parts.model("gpt_tiny", ROPE), torch.randint(65, (1, 4))
    caches = model.new_caches(lambda: Window(3, renumber=True, exact=False))

    def never(*given):
        raise AssertionError("positions were made for nobody")

    monkeypatch.setattr(Listener, "keys", never)
    monkeypatch.setattr("minitf.blocks.attention.before_renumbering", never)
    how = {"sampler": Greedy(), "max_new_tokens": 3}
    assert all(step.key_positions == {} for step in generate(model, ids[:, :1], caches=caches, **how))
    monkeypatch.undo()
    with Tap(model, at=["*.heads"]) as tap:
        model(ids)
    assert tap.key_positions == {}
    with Tap(model, at=["*.0.*.scores"]) as outer, Tap(model, at=["*.weights"]) as inner:
        model(ids)
    assert set(outer.key_positions) == {"layers.0.attention.scores"}
    assert set(inner.key_positions) == {f"layers.{i}.attention.weights" for i in range(2)}
