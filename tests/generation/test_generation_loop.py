import parts
import pytest
import torch
from torch import nn

from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.rows import window_start
from minitf.generation.sampling import Greedy, Sample
from minitf.positions import from_real, packed

CELLS = {
    "position": parts.options("model/position"),
    "mask": ["causal", "sliding_window", "strided"],  # a cache and padding meet the others in the matrix of blocks
    "cache": parts.fitting_caches("sliding_window"),
    "sampler": [Greedy(), Sample(1.0, 20, 0.9)],
}
LIMIT = 8  # places of a learned table here


def of(*overrides):
    """A model whose greedy text is long without repeating itself: an untrained one with tied embeddings only echoes."""
    model = parts.model("gpt_tiny", f"model.max_len={LIMIT}", "model.tie_embeddings=false", *overrides, scale=8)
    with torch.no_grad():
        model.embedding.weight.mul_(8)  # or what is added for the place would decide alone
    return model


def text(model, ids, n=10, sampler=None, **how):
    """(B,n) new tokens."""
    return torch.stack([s.ids for s in generate(model, ids, sampler=sampler or Greedy(), max_new_tokens=n, **how)], 1)


def batch_of(prompts, side="left"):
    """Ids and positions of prompts padded on one side with tokens that must not matter."""
    pos = parts.padded([len(p) for p in prompts], side)
    ids = torch.randint(65, pos.shape)
    for row, prompt in enumerate(prompts):
        ids[row, pos[row] >= 0] = prompt
    return ids, pos


@pytest.mark.parametrize(
    "cell",
    parts.some_by_default(parts.pairs(**CELLS), 2),
    ids=lambda c: parts.name({**c, "sampler": type(c["sampler"]).__name__}),
)
def test_a_text_belongs_to_its_prompt_alone(cell):
    """With and without a cache, in pieces, in a padded batch, past the end of a table: always the same text."""
    make = parts.caches(cell["cache"])
    model = of(*(f"model/{axis}={cell[axis]}" for axis in ("position", "mask")), "model/attention=gqa")
    prompts = [torch.randint(65, (n,)) for n in (3, 8, 1)]
    how = {"sampler": cell["sampler"], "n": 11}
    alone = [text(model, p[None], seeds=[i], **how)[0] for i, p in enumerate(prompts)]
    assert len({tuple(row.tolist()) for row in alone}) == 3
    assert torch.stack(alone).unique().numel() > 3
    for i, prompt in enumerate(prompts):
        for chunk in (None, 3):
            cached = text(model, prompt[None], seeds=[i], caches=model.new_caches(make), prefill_chunk=chunk, **how)
            assert torch.equal(cached[0], alone[i])
    for side in ("left", "right"):
        ids, pos = batch_of(prompts, side)
        for caches in (None, model.new_caches(make)):
            assert torch.equal(text(model, ids, pos=pos, caches=caches, **how), torch.stack(alone))
    in_pieces = text(model, ids, pos=pos, caches=model.new_caches(make), prefill_chunk=3, **how)
    assert torch.equal(in_pieces, torch.stack(alone))


@torch.no_grad()
def test_greedy_text_is_the_most_likely_next_token_of_a_plain_pass():
    model, ids = of("model/position=rope"), torch.randint(65, (2, 5))
    expected = ids
    for _ in range(10):
        expected = torch.cat([expected, model(expected)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(text(model, ids), expected[:, 5:])


def test_the_window_moves_by_half_a_table():
    assert [window_start(n, 8) for n in range(1, 18)] == [0] * 8 + [4] * 4 + [8] * 4 + [12]
    assert [window_start(n, 3) for n in range(1, 7)] == [0, 0, 0, 1, 2, 3]
    assert [window_start(n, 1) for n in range(1, 4)] == [0, 1, 2]
    assert window_start(10**6, None) == 0


@torch.no_grad()
@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_past_a_learned_table_the_last_part_is_read_from_place_zero(limit):
    model = of("model/position=learned", f"model.max_len={limit}")
    for n in sorted({1, limit - 1, limit} - {0}):  # shorter than the table, and exactly as long
        row = torch.randint(65, (1, n))
        new = [text(model, row, n=20, caches=caches) for caches in (None, model.new_caches(Dynamic))]
        for _ in range(20):
            row = torch.cat([row, model(row[:, window_start(row.size(1), limit) :])[:, -1:].argmax(-1)], 1)
        for got in new:
            assert torch.equal(got, row[:, n:])


class Clock(nn.Module):
    """A model without weights: row r says token 1 at the step where its stop is due and 2 otherwise."""

    position_limit = None

    def __init__(self, due):
        super().__init__()
        self.due, self.calls, self.seen = due, 0, []

    def step(self, ids, pos=None, caches=None):
        self.calls += 1
        self.seen.append(ids)
        logits = torch.zeros(ids.size(0), 4)
        for row, due in enumerate(self.due):
            logits[row, 1 if due == self.calls else 2] = 3.0
        return logits


def test_finished_rows_give_pads_and_stop_counting():
    model = Clock([2, 5, None])
    steps = list(generate(model, torch.zeros(3, 1).long(), sampler=Greedy(), max_new_tokens=8, stop=[1], pad_id=3))
    ids = torch.stack([s.ids for s in steps], 1)
    assert ids.tolist() == [[2, 1, 3, 3, 3, 3, 3, 3], [2, 2, 2, 2, 1, 3, 3, 3], [2] * 8]
    assert torch.stack([s.finished for s in steps], 1).sum(1).tolist() == [7, 4, 0]
    each = torch.zeros(4).index_fill(0, torch.tensor(2), 3.0).log_softmax(-1)[2]
    # log-probabilities count up to the stop token and with it
    torch.testing.assert_close(torch.stack([s.logprobs for s in steps], 1).sum(1), each * torch.tensor([2.0, 5, 8]))


def test_generation_ends_when_every_row_has():
    model = Clock([2, 3])
    steps = list(generate(model, torch.zeros(2, 1).long(), sampler=Greedy(), max_new_tokens=50, stop={1, 0}))
    assert (len(steps), model.calls) == (3, 3)
    assert not list(generate(Clock([1]), torch.zeros(1, 1).long(), sampler=Greedy(), max_new_tokens=0))


def test_a_row_that_ends_does_not_change_the_others():
    model = of("model/position=learned")
    ids, pos = batch_of([torch.randint(65, (n,)) for n in (2, 7, 4)])
    free = text(model, ids, 14, pos=pos)
    stop = free[0, 3].item()
    for caches in (None, model.new_caches(Dynamic)):
        ended = text(model, ids, 14, pos=pos, stop=[stop], caches=caches)
        for row in range(3):
            where = (free[row] == stop).nonzero().flatten()
            end = where[0].item() + 1 if len(where) else 14
            assert torch.equal(ended[row, :end], free[row, :end])
            assert not ended[row, end:].any()


def test_log_probabilities_are_the_models_own():
    model, ids = of("model/position=rope"), torch.randint(65, (2, 5))
    steps = list(generate(model, ids, sampler=Sample(0.7, 5, 0.8), max_new_tokens=6, caches=model.new_caches(Dynamic)))
    row = torch.cat([ids, torch.stack([s.ids for s in steps], 1)], 1)
    expected = model(row).log_softmax(-1)[:, 4:-1].gather(-1, row[:, 5:, None])[..., 0]
    torch.testing.assert_close(torch.stack([s.logprobs for s in steps], 1), expected, atol=1e-4, rtol=0)


def test_seeds_decide_a_text_and_belong_to_rows():
    model, ids = of("model/position=rope"), torch.randint(65, (1, 5)).expand(3, 5)
    how = {"sampler": Sample(1.0, None, None), "n": 12}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    rows = text(model, ids, seeds=[7, 8, 7], **how)
    assert torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[0], rows[1])
    assert torch.equal(text(model, ids[:1], seeds=[8], **how)[0], rows[1])
    assert torch.equal(text(model, ids, **how), text(model, ids, seeds=[0, 1, 2], **how))
    assert torch.equal(torch.get_rng_state(), state)


def test_generation_leaves_the_model_as_it_was():
    model, ids = of("model.dropout=0.5"), torch.randint(65, (1, 4))
    expected = text(model, ids)
    for training in (True, False):
        model.train(training)
        steps = generate(model, ids, sampler=Greedy(), max_new_tokens=10)
        first = next(steps).ids
        assert model.training == training
        assert torch.is_grad_enabled()
        assert torch.equal(torch.cat([first, *(s.ids for s in steps)]), expected[0])
    assert all(p.grad is None for p in model.parameters())


def test_used_caches_are_refused_and_reset_ones_serve_again():
    model = of("model/position=rope")
    a, b = torch.randint(65, (2, 6)), torch.randint(65, (1, 3))
    caches, expected = model.new_caches(Dynamic), [text(model, ids) for ids in (a, b, a)]
    for ids, wanted in zip((a, b, a), expected, strict=True):
        assert torch.equal(text(model, ids, caches=caches), wanted)
        with pytest.raises(ConfigError, match=rf"hold {ids.size(1) + 9} tokens already"):
            text(model, b, caches=caches)
        for cache in caches:
            cache.reset()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"ids": torch.zeros(1, 0).long()}, "prompt is empty"),
        ({"pos": torch.full((2, 5), -1)}, "prompt is empty"),
        ({"pos": packed([2, 3], 5).expand(2, 5)}, "must count 0, 1, 2"),
        ({"pos": torch.arange(3, 8).expand(2, 5)}, "must count 0, 1, 2"),
        ({"ids": torch.zeros(1, LIMIT + 1).long()}, "the prompt has 9 tokens, .* 8 places"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"prefill_chunk": 0}, "prefill_chunk"),
        ({"pad_id": -1}, "pad_id"),
        ({"seeds": [1]}, "2 rows need as many seeds, got 1"),
        ({"seeds": []}, "2 rows need as many seeds, got 0"),
        ({"ids": torch.zeros(5).long()}, r"rows of ids, int64 \(B,T\), got torch.int64 \(5,\)"),
        ({"ids": torch.zeros(0, 5).long()}, "rows of ids"),
        ({"ids": torch.zeros(2, 5)}, "rows of ids, .* got torch.float32"),
        ({"ids": torch.tensor([[3, -1]])}, "id -1 is not in the model's vocabulary of 65, .* 0 to 64"),
        ({"ids": torch.tensor([[3, 65]])}, "id 65 is not in"),
        ({"ids": torch.tensor([[1, 2], [3, 99]]), "pos": torch.tensor([[0, 1], [0, 1]])}, "id 99 is not in"),
        ({"pos": torch.arange(5)}, r"must be of that shape or \(1, 5\), got \(5,\)"),
        ({"caches": []}, "needs 2 caches, got 0"),
        ({"caches": [Dynamic()]}, "needs 2 caches, got 1"),
        ({"caches": [Dynamic()] * 2}, "got 2, 1 of them different"),
    ],
)
def test_what_cannot_be_continued_is_refused_before_the_first_step(how, message):
    model = of("model/position=learned")
    model.step = None  # never reached
    how = {"ids": torch.zeros(2, 5).long(), "sampler": Greedy(), "max_new_tokens": 3, **how}
    with pytest.raises(ConfigError, match=message):
        next(generate(model, how.pop("ids"), **how))


def test_a_long_padding_is_not_a_long_prompt():
    model = of("model/position=learned")
    prompt = torch.randint(65, (5,))
    for side in ("left", "right"):
        real = torch.arange(30) < 5 if side == "right" else torch.arange(30) >= 25
        ids = torch.randint(65, (1, 30))
        ids[0, real] = prompt
        assert torch.equal(text(model, ids, pos=from_real(real[None])), text(model, prompt[None]))
