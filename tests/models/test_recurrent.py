from functools import cache

import parts
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from minitf.cache.dynamic import Dynamic
from minitf.config import build, compose, set_data_facts
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy
from minitf.positions import packed
from minitf.tap import Tap
from minitf.training.objective.seq2seq import Seq2Seq

PRESETS = ["gru_none", "bahdanau", "luong"]
ALIGNED = ["bahdanau", "luong"]
V, D, B, S, T = 12, 16, 3, 6, 5


@cache
def composed(*overrides):
    cfg = compose("train", list(overrides))
    set_data_facts(cfg, vocab_size=V, src_vocab_size=V)
    return OmegaConf.create(OmegaConf.to_container(cfg.model, resolve=True))


def node(preset, **changes):
    return OmegaConf.merge(composed(f"model={preset}"), {"d_model": D, **changes})


def model(preset, grow=True, **changes):
    return built(node(preset, **changes), grow)


def built(config, grow=True):
    """A small model in evaluation mode, its weights so large that no part can hide in the noise."""
    torch.manual_seed(0)
    made = build(config).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn_like(p) * grow)
    return made


def rows():
    torch.manual_seed(1)
    return torch.randint(V, (B, S)), torch.randint(V, (B, T))


def cell_of(gru, suffix="_l0"):
    cell = nn.GRUCell(gru.input_size, gru.hidden_size)
    cell.load_state_dict({name: getattr(gru, name + suffix) for name in cell.state_dict()})
    return cell


def states(cell, xs, state):
    out = []
    for x in xs:
        state = cell(x, state)
        out.append(state)
    return torch.stack(out)


def by_hand(made, preset, src, ids):
    """Hidden states (T,D) of one row, token by token."""
    xs, ys = made.source_embedding(src), made.embedding(ids)
    if preset == "bahdanau":
        there = states(cell_of(made.encoder.there), xs, torch.zeros(D // 2))
        back = states(cell_of(made.encoder.back), xs.flip(0), torch.zeros(D // 2)).flip(0)
        memory = torch.cat([there, back], -1)
    else:
        memory = states(cell_of(made.encoder.gru), xs, torch.zeros(D))
    if preset == "gru_none":
        return states(cell_of(made.gru), ys, memory[-1])

    def read(state):
        fit = torch.stack(
            [made.attention.score(state[None, None, None], h[None, None, None]).squeeze() for h in memory]
        )
        return fit.softmax(0) @ memory

    if preset == "luong":
        return torch.stack(
            [torch.tanh(made.w_c(torch.cat([read(s), s]))) for s in states(cell_of(made.gru), ys, memory[-1])]
        )
    state, out = torch.tanh(made.w_start(back[0])), []
    for y in ys:
        state = made.cell(torch.cat([y, read(state)]), state)
        out.append(state)
    return torch.stack(out)


@pytest.mark.parametrize("preset", PRESETS)
def test_it_is_what_the_paper_says_token_by_token(preset):
    made, (src, ids) = model(preset), rows()
    got = made.hidden(ids, memory=made.encode(src))
    for b in range(B):
        torch.testing.assert_close(got[b], by_hand(made, preset, src[b], ids[b]), atol=1e-5, rtol=0)
    torch.testing.assert_close(made(src, None, ids), made.head(got))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("preset", PRESETS)
def test_padding_on_either_side_changes_nothing(preset, side):
    made, (src, ids) = model(preset), rows()
    src_lengths, lengths = [6, 2, 4], [3, 5, 1]
    src_pos, pos = parts.padded(src_lengths, side), parts.padded(lengths, side)
    memory = made.encode(src, src_pos)
    assert (memory[src_pos < 0] == 0).all()
    logits = made(src, src_pos, ids, pos)
    for b in range(B):
        own_src, own_ids = src[b][src_pos[b] >= 0][None], ids[b][pos[b] >= 0][None]
        torch.testing.assert_close(memory[b][src_pos[b] >= 0], made.encode(own_src)[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(logits[b][pos[b] >= 0], made(own_src, None, own_ids)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("preset", ALIGNED)
def test_alignment_rows_are_distributions_over_real_source_tokens(preset):
    made, (src, ids) = model(preset), rows()
    src_pos, pos = parts.padded([6, 2, 4], "left"), parts.padded([3, 5, 1], "left")
    with Tap(made, at="attention.weights") as tap:
        made(src, src_pos, ids, pos)
    weights = tap["attention.weights"]
    assert weights.shape == (B, 1, T, S)
    real = (src_pos >= 0)[:, None, None].expand_as(weights)
    assert (weights[~real] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 1, T))
    with Tap(made, at="attention.weights") as alone:
        made(src[:1], None, ids[:1, 2:])
    torch.testing.assert_close(weights[:1, :, 2:], alone["attention.weights"], atol=1e-5, rtol=0)


def test_weights_can_be_changed_where_no_later_step_depends_on_them():
    src, ids = rows()

    def last(weights):
        return torch.zeros_like(weights).index_fill(-1, torch.tensor(S - 1), 1.0)

    made = model("luong")
    memory = made.encode(src)
    with Tap(made, edit={"attention.weights": last}):
        changed = made.hidden(ids, memory=memory)
    read = torch.cat([memory[:, -1:].expand(B, T, D), made.gru(made.embedding(ids), memory[:, -1][None])[0]], -1)
    torch.testing.assert_close(changed, torch.tanh(made.w_c(read)))
    made = model("bahdanau")
    with Tap(made, edit={"attention.weights": last}), pytest.raises(ConfigError, match="not changed"):
        made.hidden(ids, memory=made.encode(src))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_token_sees_the_whole_source_and_no_later_token(preset):
    made, (src, ids) = model(preset), rows()
    x, source = made.embedding(ids).detach().requires_grad_(), made.source_embedding(src).detach().requires_grad_()
    memory = made.encoder(source, None)
    made.decode(x, None, memory, None)[0][:, 2].sum().backward()
    assert x.grad[:, :3].any(-1).all()
    assert (x.grad[:, 3:] == 0).all()
    assert source.grad.any(-1).all()
    assert made.sees_future is False


@pytest.mark.parametrize("preset", PRESETS)
def test_every_parameter_is_trained(preset):
    made, (src, ids) = model(preset), rows()
    made(src, None, ids).logsumexp(-1).mean().backward()
    assert not [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]


@pytest.mark.parametrize("group", ["score", "normalize"])
@pytest.mark.parametrize("preset", ALIGNED)
def test_scores_and_normalisers_are_those_of_the_transformer(preset, group):
    src, ids = rows()
    results = []
    for option in parts.options(f"model/attention/{group}"):
        part = parts.node("gpt_tiny", f"model/attention/{group}={option}").attention[group]
        config = node(preset)
        config.attention[group] = part
        made = built(config)
        logits = made(src, parts.padded([6, 2, 4], "right"), ids)
        logits.logsumexp(-1).mean().backward()
        assert logits.isfinite().all()
        results.append(logits)
    assert len({tuple(r.flatten().tolist()) for r in results}) == len(results), "each option has an effect"


def test_an_override_chooses_the_score():
    assert composed("model=luong", "model/attention/score=dot").attention.score._target_.endswith("dot.Dot")


@pytest.mark.parametrize("sizes", [[1] * T, [2, 3]], ids=str)
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("preset", PRESETS)
def test_caches_go_on_from_the_state(preset, side, sizes):
    made, (src, ids) = model(preset), rows()
    for src_side in ("left", "right"):
        src_pos, pos = parts.padded([6, 2, 4], src_side), parts.padded([2, T, 1], side)
        memory, whole = made.encode(src, src_pos), made(src, src_pos, ids, pos)
        caches, start = made.new_caches(Dynamic), 0
        for n in sizes:
            piece = slice(start, start + n)
            p = None if pos is None else pos[:, piece]
            got = made.step(ids[:, piece], p, caches, memory, src_pos)
            start += n
            real = slice(None) if pos is None else pos[:, start - 1] >= 0
            torch.testing.assert_close(got[real], whole[real, start - 1], atol=1e-6, rtol=1e-6)
        after = torch.full((B, 1), T) if pos is None else pos.amax(-1, keepdim=True) + 1
        more = torch.cat([torch.arange(T)[None].expand(B, T) if pos is None else pos, after], 1)
        got = made.step(ids[:, :1], after, caches, memory, src_pos)  # also after padding on the right
        whole = made(src, src_pos, torch.cat([ids, ids[:, :1]], 1), more)
        torch.testing.assert_close(got, whole[:, -1], atol=1e-6, rtol=1e-6)
    assert caches[0].n_seen == T + 1
    assert caches[0].n_bytes == B * D * 4
    assert [c.n_seen for c in caches[1:]] == ([S] if preset == "bahdanau" else [])


def test_keys_of_the_source_are_made_once():
    made, (src, ids) = model("bahdanau"), rows()
    memory, caches = made.encode(src), made.new_caches(Dynamic)
    made.step(ids[:, :2], None, caches, memory)
    expected = made.step(ids, memory=memory)
    with torch.no_grad():
        made.attention.score.w_k.zero_()
    torch.testing.assert_close(made.step(ids[:, 2:], None, caches, memory), expected)
    assert not model("bahdanau").attention.keys(memory, None).allclose(memory[:, None])
    other = composed("model=bahdanau", "model/attention/score=dot")
    assert len(built(OmegaConf.merge(other, {"d_model": D})).new_caches(Dynamic)) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_rows_of_caches_are_selected(preset):
    made, (src, ids) = model(preset), rows()
    memory, caches, order = made.encode(src), made.new_caches(Dynamic), torch.tensor([2, 2, 0, 1])
    made.step(ids[:, :3], None, caches, memory)
    for c in caches:
        c.select(order)
    got = made.step(ids[order, 3:], None, caches, memory[order])
    torch.testing.assert_close(got, made(src, None, ids)[order, -1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_text_is_the_same_with_and_without_caches(preset):
    made, (src, ids) = model(preset), rows()
    src_pos = parts.padded([6, 2, 4], "right")
    memory = made.encode(src, src_pos)
    for pos in (None, parts.padded([3, T, 1], "left")):
        texts = [
            torch.stack(
                [
                    step.ids
                    for step in generate(
                        made,
                        ids,
                        pos=pos,
                        memory=memory,
                        memory_pos=src_pos,
                        caches=caches,
                        sampler=Greedy(),
                        max_new_tokens=9,
                        prefill_chunk=chunk,
                    )
                ]
            )
            for caches, chunk in ((None, None), (made.new_caches(Dynamic), None), (made.new_caches(Dynamic), 2))
        ]
        assert torch.equal(texts[0], texts[1])
        assert torch.equal(texts[0], texts[2])


@pytest.mark.parametrize("preset", PRESETS)
def test_generation_reads_the_target_again_at_each_step(preset):
    made, (src, ids) = model(preset), rows()
    src_pos = parts.padded([6, 2, 4], "right")
    memory = made.encode(src, src_pos)
    logits = made(src, src_pos, ids)
    torch.testing.assert_close(made.step(ids, memory=memory, memory_pos=src_pos), logits[:, -1])
    steps = generate(made, ids, memory=memory, memory_pos=src_pos, sampler=Greedy(), max_new_tokens=2)
    first, second = [step.ids for step in steps]
    assert torch.equal(first, logits[:, -1].argmax(-1))
    assert torch.equal(second, made(src, src_pos, torch.cat([ids, first[:, None]], 1))[:, -1].argmax(-1))


@pytest.mark.parametrize("preset", PRESETS)
def test_it_learns_to_reverse_a_batch_by_heart(preset):
    made = model(preset, grow=False, d_model=32).train()
    src = torch.randint(1, V, (16, 5))
    batch = {"src": src, "ids": torch.cat([torch.zeros(16, 1, dtype=torch.long), src.flip(1)[:, :-1]], 1)}
    batch["targets"] = src.flip(1)
    optimizer, objective = torch.optim.Adam(made.parameters(), 1e-2), Seq2Seq()
    objective.check(made)
    for _ in range(80):
        optimizer.zero_grad()
        loss, metrics = objective(made, batch)
        loss.backward()
        optimizer.step()
    assert metrics["n_correct"] == 80
    assert loss < 0.1


def test_what_cannot_be_says_why():
    made, (src, ids) = model("bahdanau"), rows()
    memory = made.encode(src)
    with pytest.raises(ConfigError, match="was given none: encode one first"):
        made.hidden(ids)
    with pytest.raises(ConfigError, match="3 rows of target tokens, 2 of memory"):
        made.hidden(ids, memory=memory[:2])
    caches = made.new_caches(Dynamic)
    for wrong in (caches[:1], [Dynamic(), Dynamic()]):
        with pytest.raises(ConfigError, match="needs 2 caches, the first one a State"):
            made.hidden(ids, memory=memory, caches=wrong)
    made.hidden(ids, parts.padded([3, 5, 1], "left"), memory, caches=caches)
    with pytest.raises(ConfigError, match="give the positions of the new tokens"):
        made.step(ids, None, caches, memory)
    with pytest.raises(ConfigError, match="hold 3 rows, got 2 of target tokens"):
        made.step(ids[:2], parts.padded([5, 1], "left"), caches, memory[:2])
    with pytest.raises(ConfigError, match=r"holds 3 rows of 6 tokens, the source is \(3, 4, 16\)"):
        made.step(ids, parts.padded([5, 1, 1], "left"), caches, memory[:, :4])
    with pytest.raises(ConfigError, match="not packed ones: pad the rows"):
        made.encode(src, packed([2, 4], S)[None])
    with pytest.raises(ConfigError, match=r"data.src_vocab_size is null"):
        build(node("luong", src_vocab_size=None))
    with pytest.raises(ConfigError, match="even d_model, got 15"):
        build(node("bahdanau", d_model=15))
