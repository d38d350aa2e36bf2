"""The battery: null models decide about names."""

import json

import head_models
import pytest
import torch

from minitf.analysis.heads.battery import battery, reports
from minitf.analysis.heads.measure import ACCURACY, LAYER, Measured, measure
from minitf.analysis.heads.names import names_of, offset_name
from minitf.analysis.heads.roles import asked
from minitf.analysis.heads.rows import base_columns
from minitf.analysis.heads.shuffled import shuffled
from minitf.analysis.sites import Site, sites
from minitf.errors import ConfigError, DataError
from minitf.tap import Tappable

REPEAT = ("data=repeat", "data.n_val=48", "model.n_layers=2", "model.d_model=48", "model.attention.n_heads=2")
REPEAT += ("model/ffn=none", "model/position=rope", "model/init=unit_variance", "model.tie_embeddings=false")
SMALL = ("data.n_val=24", "model.d_model=16")


def untrained(*setting):
    return (head_models.new_model(seed, *setting) for seed in (11, 12, 13))


class Hide(torch.nn.Module):
    def forward(self, weights, visible):
        return weights * visible


class Pointing(Tappable):
    """Three heads: the column that a token names, the token before, and the first token half the time."""

    tap_points = ("weights",)
    n_heads = 3

    def __init__(self):
        super().__init__()
        self.normalize = Hide()

    def forward(self, ids, pos=None):
        n = ids.size(1)
        weights = self.normalize(self.weights(ids, n), torch.ones(1, 1, n, n).tril() > 0)
        if self.tap is not None:
            self.tap("weights", weights)
        return ids

    def weights(self, ids, n):
        column = torch.arange(n)
        named = torch.nn.functional.one_hot(ids.clamp(max=n - 1), n).float()
        before = torch.nn.functional.one_hot((column - 1).clamp_min(0), n).float().expand_as(named)
        first = 0.5 * torch.eye(n).expand_as(named).clone()
        first[:, :, 0] += 0.5
        return torch.stack([named, before, first], 1)


class Model(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, ids, pos=None):
        return self.attention(ids)


class Uniform(Pointing):
    def weights(self, ids, n):
        return (1 / torch.arange(1, n + 1)[:, None]).expand(ids.size(0), 3, n, n)


def pointing_batch():
    """Tokens that name an earlier column, not the first; gold says the same at every second place."""
    torch.manual_seed(0)
    ids = 1 + (torch.rand(16, 30) * (torch.arange(30) - 1).clamp_min(1)).long()
    gold = ids.where(torch.arange(30) % 2 == 0, -1)[:, :, None]
    return {"ids": ids, "gold.named": gold}


def test_heads_are_named_by_what_they_do_and_shuffled_gold_takes_the_name():
    batch = pointing_batch()
    nulls = [Model(Uniform())] * 2
    found = battery(Model(Pointing()), [batch], nulls)
    assert [[name.name for name in head.names] for head in found.heads] == [["named"], ["previous-token"], ["sink"]]
    assert [head.place for head in found.called("named")] == ["0.0"]
    (name,) = found["0.0"].names
    _, share, n = found["0.0"].baselines["named"]
    assert (name.score, name.value) == (ACCURACY + "named", 1)
    assert share < 0.2
    assert n == 16 * 13  # rows 4, 6, ... 28
    assert name.needed >= max(share + 0.1, found["0.0"].shuffled[ACCURACY + "named"] + 0.05)
    # the same heads, and gold that was dealt out anew: whatever is left is no name
    every = asked(batch["gold.named"], torch.ones_like(batch["ids"], dtype=torch.bool))
    base = base_columns(torch.arange(30).expand(16, -1), torch.arange(30).expand(16, -1), False)
    dealt = shuffled(every, base, 1, torch.Generator().manual_seed(3)).columns[0]
    gold = torch.full_like(batch["gold.named"], -1)
    gold[every.row, every.query] = dealt.clamp_min(-1)
    assert not battery(Model(Pointing()), [{**batch, "gold.named": gold}], nulls).called("named")
    # without untrained models there are no names
    assert not any(head.names for head in battery(Model(Pointing()), [batch]).heads)


def test_a_role_that_a_fixed_offset_serves_names_nobody():
    batch = pointing_batch()
    batch["gold.before"] = (torch.arange(30) - 1).expand(16, -1)[:, :, None]
    found = battery(Model(Pointing()), [batch], [Model(Uniform())])
    head = found["0.1"]
    assert head.scores[ACCURACY + "before"] == 1
    assert head.baselines["before"][:2] == (1, 1.0)
    assert [name.name for name in head.names] == ["previous-token"]
    assert head.scores["selectivity"] == pytest.approx(1 - head.scores["mass:named"])


SCORES = {"previous_token": 0.6, "steady_offset": 2.0, "steady_offset_share": 0.95, "accuracy:r": 0.5, "sink": None}


def test_a_name_needs_the_threshold_and_both_null_models():
    def names(nulls, baselines=None):
        return [(n.name, round(n.needed, 6)) for n in names_of(SCORES, nulls, baselines or {})]

    assert names({}) == []
    assert names({"previous_token": [0.1]}) == [("previous-token", 0.4)]
    assert names({"previous_token": [0.54]}) == [("previous-token", 0.59)]
    assert names({"previous_token": [0.1, 0.56]}) == []
    assert names({"steady_offset_share": [0.1]}) == [("offset -2", 0.9)]
    assert names({"accuracy:r": [0.1, 0.2]}, {"r": (3, 0.35, 100)}) == [("r", 0.45)]
    assert names({"accuracy:r": [0.1, 0.2]}, {"r": (3, 0.41, 100)}) == []
    assert names({"accuracy:r": [0.1, 0.46]}, {"r": (3, 0.35, 100)}) == []
    assert names({"accuracy:r": [0.1, 0.2]}, {"r": (3, 0.35, 29)}) == []  # too few queries
    assert names({"sink": [0.0]}) == []
    assert [offset_name(k) for k in (2, 0, -1)] == ["offset -2", "offset 0", "offset +1"]


def test_a_head_is_compared_with_its_own_shuffles():
    site = Site("self", 1, "layers.1.attention", 3)
    key = ACCURACY + "r"
    own = Measured(scores={key: torch.tensor([0.6, 0.6, 0.6])}, baselines={"r": (1, 0.3, 100)})
    own.shuffled[key] = torch.tensor([[0.1, 0.1, 0.1]] * 5 + [[0.2, 0.58, torch.nan]] * 5)
    null = Measured(scores={key: torch.tensor([0.05, 0.1, 0.0])})
    found = list(reports(site, own, [null]))
    assert [[name.name for name in head.names] for head in found] == [["r"], [], []]
    assert [head.shuffled for head in found] == [{key: pytest.approx(0.2)}, {key: pytest.approx(0.58)}, {}]
    assert found[2].untrained == {key: pytest.approx(0.1)}  # the best head of the site


CELLS = {
    "repeat": ("data=repeat", *SMALL),
    "look_back": ("data=look_back", *SMALL),
    "sort": ("data=sort", *SMALL),
    "bahdanau": ("data=sort", "model=bahdanau", *SMALL),
    "majority": ("data=majority", *SMALL),
}


@pytest.mark.parametrize("cell", CELLS)
def test_an_untrained_model_gets_no_names_and_json_no_nan(cell):
    setting = CELLS[cell]
    batches = head_models.batches(*setting)
    model = head_models.new_model(0, *setting).train()
    found = battery(model, batches, untrained(*setting), n_shuffles=5)
    assert model.training
    assert not any(head.names for head in found.heads)
    assert [head.site for head in found.heads] == [site for site in sites(model) for _ in range(site.n_heads)]
    assert [layer.site for layer in found.layers] == sites(model)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["settings"]["untrained"] == 3
    for report in (*found.heads, *found.layers):
        assert {name for name, value in report.scores.items() if value is None} == set(report.reasons)
    roles = head_models.prepared(*setting)[1].roles
    kind = "cross" if "src" in batches[0] else "self"
    for head in found.heads:
        has_gold = head.site.kind == kind
        assert set(head.baselines) == (set(roles) if has_gold else set())
        assert (ACCURACY + roles[0] in head.scores) == has_gold
        assert (head.scores["sink_active"] is not None) == has_gold
        assert (head.scores.get("alignment_error") is not None) == (kind == "cross" and has_gold)
        assert (head.scores["importance"] is None) == (cell == "bahdanau")
        assert head.scores["row_mass"] == pytest.approx(1)
        assert (head.scores["prefix_matching"] is None) == (head.site.kind == "cross")
    assert all(set(layer.scores) == set(LAYER) for layer in found.layers)


def test_pieces_do_not_matter_and_shuffles_are_those_of_the_seed():
    setting = CELLS["sort"]
    batches = head_models.batches(*setting)
    model = head_models.new_model(0, *setting)
    whole, pieces = (measure(model, batches, n_shuffles=3, max_bytes=n) for n in (2**28, 30_000))
    for site, one in whole.items():
        other = pieces[site]
        assert one.baselines == other.baselines
        for a, b in ((one.scores, other.scores), (one.shuffled, other.shuffled)):
            assert a.keys() == b.keys()
            for name, value in a.items():
                torch.testing.assert_close(value, b[name], atol=1e-5, rtol=1e-4, equal_nan=True, msg=f"{site} {name}")
        assert one.layer == pytest.approx(other.layer, rel=1e-4)
    other = measure(model, batches, n_shuffles=3, seed=1)
    assert any(not torch.equal(v, other[s].shuffled[k]) for s, o in whole.items() for k, v in o.shuffled.items())


def test_what_cannot_be_is_refused():
    model = Model(Pointing())
    with pytest.raises(DataError, match="no batches"):
        battery(model, [])
    with pytest.raises(ConfigError, match="n_shuffles"):
        battery(model, [pointing_batch()], n_shuffles=0)
    with pytest.raises(ConfigError, match="other heads"):
        battery(model, [pointing_batch()], [torch.nn.Sequential(Pointing())])
    with pytest.raises(KeyError, match=r"no head '1\.0'; there are 0\.0, 0\.1"):
        battery(model, [pointing_batch()], n_shuffles=1)["1.0"]


@pytest.mark.slow
def test_a_trained_model_gets_induction_and_previous_token_heads_by_name():
    model = head_models.trained(0, 400, *REPEAT)
    found = battery(model, head_models.batches(*REPEAT), untrained(*REPEAT))
    assert {head.site.layer for head in found.called("previous-token")} == {0}
    induction = found.called("induction")
    assert {head.site.layer for head in induction} == {1}
    assert all(head.is_called("copying") and head.is_called("repeat") for head in induction)
    assert max(head.scores["prefix_matching"] for head in induction) > 0.8
    # heads at rest before the segment comes again, and not afterwards
    assert all(head.scores["sink_dormant"] > head.scores["sink_active"] for head in induction)
