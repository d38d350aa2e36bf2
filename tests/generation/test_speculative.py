import itertools
import math

import parts
import pytest
import torch
from torch import nn

from minitf.cache.dynamic import Dynamic
from minitf.cache.int8 import Int8
from minitf.cache.static import Static
from minitf.cache.window import Window
from minitf.errors import ConfigError
from minitf.generation import speculative
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy, Sample
from minitf.generation.speculative import speculate

CACHES = {"none": None, "dynamic": Dynamic, "static": Static}
NO_CACHES = {"caches": None, "draft_caches": None}


class Pairs(nn.Module):
    """A model without attention: the next token depends on the last two."""

    position_limit = None

    def __init__(self, n=3, seed=0, scale=1.5):
        super().__init__()
        self.embedding = nn.Embedding(n, 1)
        self.table = scale * torch.randn(n, n, n, generator=torch.Generator().manual_seed(seed))
        self.rows = []

    def hidden(self, ids, pos=None, caches=None):
        self.rows.append(ids[0].tolist())
        return self.table[torch.nn.functional.pad(ids, (1, 0))[:, :-1], ids]

    def head(self, hidden):
        return hidden

    def step(self, ids, pos=None, caches=None):
        return self.hidden(ids)[:, -1]


class Script:
    """Stands for torch in the module: each random draw follows a script, and its probability is kept.

    Past the end of the script each draw takes its first possible outcome; `next_scripts` are those of the others.
    """

    def __init__(self, choices):
        self.choices, self.at, self.mass, self.next_scripts = choices, 0, 1.0, []

    def __getattr__(self, name):
        return getattr(torch, name)

    def draw(self, probs):
        possible = [i for i, p in enumerate(probs) if p > 0]
        if self.at == len(self.choices):
            self.next_scripts += [[*self.choices, i] for i in possible[1:]]
            self.choices = [*self.choices, possible[0]]
        outcome = self.choices[self.at]
        self.at, self.mass = self.at + 1, self.mass * probs[outcome]
        return outcome

    def multinomial(self, p, n, generator):
        assert n == 1
        rows = p.reshape(-1, p.size(-1))
        drawn = [self.draw((row / row.sum()).tolist()) for row in rows]
        return torch.tensor(drawn).reshape(*p.shape[:-1], 1)

    def bernoulli(self, p, generator):
        return torch.tensor([self.draw([1 - x, x]) for x in p.flatten().tolist()]).reshape(p.shape).double()


def all_texts(monkeypatch, run):
    """Text -> its exact probability, over every outcome of every draw; and how many outcomes there are."""
    found, scripts, n = {}, [[]], 0
    while scripts:
        script = Script(scripts.pop())
        monkeypatch.setattr(speculative, "torch", script)
        text = tuple(int(step.ids) for step in run())
        found[text] = found.get(text, 0) + script.mass
        scripts += script.next_scripts
        n += 1
    return found, n


def expected_texts(model, ids, sampler, n, stop=()):
    """Text -> probability, by definition."""
    found, open_texts = {}, {(): 1.0}
    for _ in range(n):
        longer = {}
        for text, mass in open_texts.items():
            p = sampler.probs(model.step(torch.cat([ids, torch.tensor([text]).long()], 1)))[0]
            longer |= {(*text, token): mass * p[token].item() for token in p.nonzero().flatten().tolist()}
        found |= {text: mass for text, mass in longer.items() if text[-1] in stop}
        open_texts = {text: mass for text, mass in longer.items() if text[-1] not in stop}
    return found | open_texts


@pytest.mark.parametrize(
    ("sampler", "n", "n_draft", "stop"),
    [
        (Sample(1.0, None, None), 3, 2, ()),
        (Sample(0.5, None, None), 3, 4, (1,)),
        (Sample(1.7, 2, None), 3, 2, (2,)),
        (Sample(1.0, None, 0.8), 4, 3, ()),
        (Sample(0, None, None), 4, 2, ()),
    ],
)
def test_each_text_has_exactly_the_probability_that_the_model_gives_it(monkeypatch, sampler, n, n_draft, stop):
    model, draft, ids = Pairs(seed=1), Pairs(seed=2), torch.tensor([[0, 2]])
    how = {"sampler": sampler, "max_new_tokens": n, "n_draft": n_draft, "stop": stop}
    found, n_outcomes = all_texts(monkeypatch, lambda: speculate(model, draft, ids, **how, **NO_CACHES))
    expected = expected_texts(model, ids, sampler, n, stop)
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[text], expected[text], rel_tol=1e-9) for text in expected)
    assert sampler.temperature == 0 or n_outcomes > 3 * len(expected)  # refusals and all were among them


def test_real_draws_follow_the_model_and_not_the_draft():
    model, draft, ids = Pairs(seed=1), Pairs(seed=2), torch.tensor([[0, 2]])
    sampler, n = Sample(1.0, None, None), 500
    how = {"sampler": sampler, "max_new_tokens": 2, "n_draft": 1}
    counts = torch.zeros(3, 3)
    for seed in range(n):
        first, second = (int(s.ids) for s in speculate(model, draft, ids, seed=seed, **how, **NO_CACHES))
        counts[first, second] += 1
    for one, is_it in ((model, True), (draft, False)):
        expected = expected_texts(one, ids, sampler, 2)
        expected = torch.tensor([[expected[a, b] for b in range(3)] for a in range(3)]) * n
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert (chi_square < 26.1) == is_it  # 99.9 % of 8 degrees of freedom


def gpt(*overrides, seed=None):
    model = parts.model("gpt_tiny", "model/position=rope", "model.tie_embeddings=false", *overrides, scale=8)
    with torch.no_grad():
        model.embedding.weight.mul_(8)
        if seed is not None:  # near the other model, so that some drafts are right
            torch.manual_seed(seed)
            for p in model.parameters():
                p.add_(0.15 * p.std() * torch.randn_like(p))
    return model


def made(kind, model):
    return None if CACHES[kind] is None else model.new_caches(CACHES[kind])


@pytest.mark.parametrize(("kind", "draft_kind"), [("none", "dynamic"), ("dynamic", "static"), ("static", "none")])
@pytest.mark.parametrize("n_draft", [1, 4, 30])
def test_greedy_text_is_that_of_the_model_alone(kind, draft_kind, n_draft):
    model, draft = gpt(), gpt(seed=3)
    ids, n = torch.randint(65, (1, 5)), 16
    expected = list(generate(model, ids, sampler=Greedy(), max_new_tokens=n))
    caches, draft_caches = made(kind, model), made(draft_kind, draft)
    for sampler in (Greedy(), Sample(0, None, None)):
        how = {"sampler": sampler, "max_new_tokens": n, "n_draft": n_draft}
        steps = speculate(model, draft, ids, caches=caches, draft_caches=draft_caches, **how)
        found = list(steps)
        assert [int(s.ids) for s in found] == [int(s.ids) for s in expected]
        logprobs = [torch.cat([s.logprobs for s in text]) for text in (found, expected)]
        torch.testing.assert_close(*logprobs, atol=1e-4, rtol=0)
        assert not any(s.finished for s in found)
        assert 0 < steps.n_accepted < steps.n_drafted  # both ways were gone
        assert steps.n_passes + steps.n_accepted == n
        assert steps.acceptance == steps.n_accepted / steps.n_drafted
        if caches is not None:
            assert {c.n_seen for c in caches} == {5 + n - 1}
        for cache in [*(caches or []), *(draft_caches or [])]:
            cache.reset()


def test_a_draft_that_is_the_model_is_always_right():
    model, ids = gpt(), torch.randint(65, (1, 5))
    for sampler in (Greedy(), Sample(1.0, 20, 0.9)):
        how = {"caches": model.new_caches(Dynamic), "draft_caches": model.new_caches(Dynamic), "n_draft": 4}
        steps = speculate(model, model, ids, sampler=sampler, max_new_tokens=15, **how)
        assert len(list(steps)) == 15
        assert (steps.n_passes, steps.n_drafted, steps.n_accepted, steps.acceptance) == (3, 12, 12, 1.0)


def test_a_stop_token_inside_an_accepted_run_ends_the_text_there():
    model, ids = gpt(), torch.randint(65, (1, 5))
    free = [int(s.ids) for s in generate(model, ids, sampler=Greedy(), max_new_tokens=10)]
    assert free[2] not in free[:2]
    caches, draft_caches = model.new_caches(Dynamic), model.new_caches(Dynamic)
    how = {"caches": caches, "draft_caches": draft_caches, "n_draft": 6, "stop": [free[2]]}
    found = list(speculate(model, model, ids, sampler=Greedy(), max_new_tokens=10, **how))
    assert [int(s.ids) for s in found] == free[:3]
    assert [s.finished.tolist() for s in found] == [[False], [False], [True]]
    assert {c.n_seen for c in (*caches, *draft_caches)} == {7}  # what was drafted after it is forgotten


def test_the_same_seed_gives_the_same_text_and_nothing_else_is_touched():
    model, draft, ids = gpt("model.dropout=0.5"), gpt("model.dropout=0.5", seed=3), torch.randint(65, (1, 5))
    model.train()
    state = torch.get_rng_state()
    texts = []
    for seed, make in itertools.product((7, 8), (None, Dynamic)):
        new = {"caches": make and model.new_caches(make), "draft_caches": make and draft.new_caches(make)}
        steps = speculate(model, draft, ids, sampler=Sample(1.0, None, 0.9), max_new_tokens=12, seed=seed, **new)
        texts.append([int(next(steps).ids)])
        assert model.training
        assert not draft.training
        assert torch.is_grad_enabled()
        texts[-1] += [int(s.ids) for s in steps]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert torch.equal(torch.get_rng_state(), state)


def test_what_was_read_is_not_read_again_and_never_more_than_asked_for():
    model, draft, ids = Pairs(seed=1), Pairs(seed=1), torch.tensor([[0, 2]])
    for n in (0, 1, 6):
        model.rows, draft.rows = [], []
        steps = speculate(model, draft, ids, sampler=Greedy(), max_new_tokens=n, n_draft=4, **NO_CACHES)
        assert len(list(steps)) == n
        assert [len(row) for row in model.rows] == {0: [], 1: [2], 6: [6, 7]}[n]
        assert [len(row) for row in draft.rows] == {0: [], 1: [], 6: [2, 3, 4, 5]}[n]


class Short(Dynamic):
    """Takes in three tokens at a time, and cannot forget more than `room`; it says so, or not."""

    def __init__(self, room, says=True):
        super().__init__()
        self.reserved, self.room, self.takes_back = None, room, room if says else None

    @property
    def chunk_limit(self):
        return 3

    def reserve(self, n):
        self.reserved = n

    def update(self, *entries, pos, plain):
        assert pos.size(1) <= 3
        assert self.n_seen + pos.size(1) <= self.reserved
        return super().update(*entries, pos=pos, plain=plain)

    def crop(self, n):
        if self.room < self.n_seen - n:
            raise ConfigError("this cache cannot go back so far")
        super().crop(n)


def test_caches_that_take_in_few_tokens_and_go_back_few():
    model, draft, ids = gpt(), gpt(seed=3), torch.randint(65, (1, 8))
    how = {"sampler": Greedy(), "max_new_tokens": 20, "n_draft": 5}
    expected = [int(s.ids) for s in speculate(model, draft, ids, **how, **NO_CACHES)]

    def run(*room):
        return run_with(lambda: Short(*room))

    def run_with(make):
        caches, draft_caches = (m.new_caches(make) for m in (model, draft))
        return [int(s.ids) for s in speculate(model, draft, ids, **how, caches=caches, draft_caches=draft_caches)]

    assert run(5) == expected
    with pytest.raises(ConfigError, match=r"takes back up to n_draft \(5\) tokens, this Short cache 4 at most"):
        run(4)
    with pytest.raises(ConfigError, match=r"this Int8 cache 4 at most: .* spare=4"):
        run_with(lambda: Int8(lambda: Window(8, 2, exact=False, spare=3)))
    with pytest.raises(ConfigError, match=r"must take back refused tokens.*cannot go back so far"):
        run(0, False)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"draft": Pairs(4)}, "the model knows 3 tokens, the draft 4"),
        ({"ids": torch.zeros(2, 3).long()}, r"one row .* got \(2, 3\)"),
        ({"ids": torch.zeros(1, 0).long()}, "prompt is empty"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"n_draft": 0}, "n_draft"),
        ({"seed": -1}, "seed"),
        ({"sampler": lambda logits, generators: logits.argmax(-1)}, "needs a sampler with probs"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_first_pass(how, message):
    how = {"ids": torch.zeros(1, 3).long(), "sampler": Greedy(), "max_new_tokens": 3, "draft": Pairs(), **how}
    with pytest.raises(ConfigError, match=message):
        speculate(Pairs(), how.pop("draft"), how.pop("ids"), **how, **NO_CACHES)


def test_models_and_caches_that_do_not_fit_are_refused_before_the_first_pass():
    long, short = Pairs(65), gpt("model/position=learned", "model.max_len=8")
    ids, how = torch.randint(65, (1, 4)), {"sampler": Greedy(), "n_draft": 3}
    for pair, name in (((long, short), "draft"), ((short, long), "model")):
        assert len(list(speculate(*pair, ids, max_new_tokens=5, **how, **NO_CACHES))) == 5
        with pytest.raises(ConfigError, match=f"4 tokens and 6 new .* {name}, 8 places: ask for at most 5"):
            speculate(*pair, ids, max_new_tokens=6, **how, **NO_CACHES)
    used = gpt()
    caches = used.new_caches(Dynamic)
    used(ids, None, caches)
    with pytest.raises(ConfigError, match="hold 4 tokens already"):
        speculate(used, used, ids, max_new_tokens=6, **how, caches=None, draft_caches=caches)
    caches = used.new_caches(lambda: Static(8))
    with pytest.raises(ConfigError, match="9 tokens do not fit a static cache of 8"):
        speculate(used, used, ids, max_new_tokens=6, **how, caches=caches, draft_caches=None)
    with pytest.raises(ConfigError, match="EncoderDecoder, which reads a source"):
        speculate(parts.model("vaswani_tiny"), long, ids, max_new_tokens=1, **how, **NO_CACHES)
