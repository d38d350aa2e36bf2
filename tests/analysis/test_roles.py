"""Roles, their baselines and their null models, alignment, importance: by hand and against loops."""

import head_models
import parts
import pytest
import torch

from minitf.analysis import forward
from minitf.analysis.heads import alignment, importance, roles
from minitf.analysis.heads.shuffled import shuffled, shuffled_ids
from minitf.analysis.sites import sites
from minitf.errors import DataError
from minitf.tap import Tap, zero_heads

# two heads, one row of five queries: gold of query 1 is 0, of query 3 is 0 or 1, of query 4 is 2
GOLD = torch.tensor([[[-1, -1], [0, -1], [-1, -1], [0, 1], [2, -1]]])
WEIGHTS = torch.zeros(1, 2, 5, 5)
WEIGHTS[0, 0, 1, :2] = torch.tensor([0.75, 0.25])
WEIGHTS[0, 0, 3, :4] = torch.tensor([0.25, 0.5, 0.25, 0])
WEIGHTS[0, 0, 4, :5] = torch.tensor([0, 0, 0.25, 0, 0.75])
WEIGHTS[0, 1] = torch.eye(5)
ROWS = torch.ones(1, 5, dtype=torch.bool)
BASE = torch.arange(5)[None]


def test_mass_and_accuracy_worked_out():
    wanted = roles.asked(GOLD, ROWS)
    found = roles.score(WEIGHTS, wanted)
    torch.testing.assert_close(found.mass.value, torch.tensor([(0.75 + 0.75 + 0.25) / 3, 0]).double())
    torch.testing.assert_close(found.accuracy.value, torch.tensor([2 / 3, 0]).double())
    # rows that do not count ask nothing; pieces add up
    some = ROWS & (BASE < 4)
    part = roles.score(WEIGHTS, roles.asked(GOLD, some))
    assert part.mass.n == 2
    assert (part + roles.score(WEIGHTS, roles.asked(GOLD, ~some))).mass.value[0] == found.mass.value[0]
    # a row without any weight looks nowhere, not at its first key
    assert roles.score(torch.zeros(1, 1, 5, 5), wanted).accuracy.value == 0


def test_gold_of_a_whole_row_is_asked_by_every_query():
    wanted = roles.asked(torch.tensor([[[3]]]), ROWS & (BASE > 0))
    assert wanted.query.tolist() == [1, 2, 3, 4]
    assert roles.score(WEIGHTS, wanted).accuracy.value.tolist() == [0, 0.25]


def test_the_best_fixed_offset_answers_most_queries():
    counts = roles.gold_offsets(roles.asked(GOLD, ROWS), BASE)
    assert counts.counts == {1: 1, 3: 1, 2: 2}
    assert counts.best() == (2, 2 / 3)
    assert (counts + roles.OffsetCounts({1: 5}, 5)).best() == (1, 6 / 8)
    assert roles.OffsetCounts({}, 0).best() == (0, 0.0)


def test_selectivity_is_the_lead_of_the_best_role():
    mass = torch.tensor([[0.9, 0.4], [0.2, 0.5], [0.1, 0.5]])
    torch.testing.assert_close(roles.selectivity(mass), torch.tensor([0.7, 0.0]))


def test_fields_of_roles():
    gold = {"day": torch.tensor([[[0, 1], [-1, -1]]]), "year": torch.tensor([[[-1, -1], [3, -1]]])}
    query, source = roles.fields(gold, 2, 5)
    assert query.tolist() == [[0, 1]]
    assert source.tolist() == [[0, 0, -1, 1, -1]]
    weights = torch.tensor([[[[0.5, 0.25, 0.125, 0.125, 0], [0, 0, 0.25, 0.75, 0]]]])
    assert roles.field_mass(weights, query, source, 2).value.tolist() == [[[0.75, 0.125], [0, 0.75]]]


def random_gold(n_batch=6, n=30):
    torch.manual_seed(4)
    gold = torch.full((n_batch, n, 1), -1)
    for b in range(n_batch):
        for i in range(5, n, 2):
            gold[b, i, 0] = torch.randint(i - 5, i, ())
    return gold


def test_shuffled_gold_keeps_queries_and_distances_and_breaks_the_pairs():
    gold, rows = random_gold(), torch.ones(6, 30, dtype=torch.bool)
    base = torch.arange(30).expand(6, -1)
    wanted = roles.asked(gold, rows)
    dealt = shuffled(wanted, base, 8, torch.Generator().manual_seed(0))
    for columns in dealt.columns:
        new = roles.Asked(wanted.row, wanted.query, columns)
        assert sorted(new.distances(base).flatten().tolist()) == sorted(wanted.distances(base).flatten().tolist())
        assert 0.05 < (columns == wanted.columns).float().mean() < 0.4
    # one head looks at the gold, one at a fixed distance
    weights = torch.zeros(6, 2, 30, 30)
    weights[wanted.row, 0, wanted.query, wanted.columns[:, 0]] = 1
    weights[:, 1] = torch.eye(30).roll(-2, 1)
    visible = torch.ones(6, 30, 30).tril().bool()
    own = roles.score(weights, wanted).accuracy.value
    null = dealt.score(weights, visible, rows).accuracy
    assert null.value.shape == (8, 2)
    assert own[0] == 1
    assert null.value[:, 0].max() < 0.4
    torch.testing.assert_close(null.value[:, 1], own[1].expand(8))  # nothing but distances: shuffling changes nothing
    # in pieces of rows the same
    parts_ = [dealt.score(weights[a : a + 2], visible[a : a + 2], rows[a : a + 2], a) for a in (0, 2, 4)]
    total = parts_[0] + parts_[1] + parts_[2]
    assert torch.equal(total.accuracy.value, null.value)
    assert [len(wanted.within(rows[a : a + 2], a).row) for a in (0, 2, 4)] == [26, 26, 26]


def test_shuffled_answers_that_cannot_be_read_do_not_count():
    gold = torch.tensor([[[-1], [0], [-1], [-1], [-1], [0]]])  # distances 1 and 5
    wanted = roles.asked(gold, torch.ones(1, 6, dtype=torch.bool))
    base = torch.arange(6)[None]
    visible = torch.ones(1, 6, 6).tril().bool()
    weights = torch.eye(6).roll(-1, 1)[None, None] * 1.0
    for seed in range(4):
        dealt = shuffled(wanted, base, 1, torch.Generator().manual_seed(seed))
        found = dealt.score(weights, visible, torch.ones(1, 6, dtype=torch.bool))
        if dealt.columns[0].flatten().tolist() == [-4, 4]:
            assert found.accuracy.n == 1
            assert found.accuracy.value == 1
            visible[0, 5, 4] = False
            assert dealt.score(weights, visible, torch.ones(1, 6, dtype=torch.bool)).accuracy.n == 0
            return
    pytest.fail("no shuffle exchanged the two distances")


def test_places_without_a_further_answer_stay_empty():
    gold = torch.tensor([[[-1, -1]] * 4 + [[2, -1], [1, 3], [4, -1]]])
    wanted = roles.asked(gold, torch.ones(1, 7, dtype=torch.bool))
    dealt = shuffled(wanted, torch.arange(7)[None], 6, torch.Generator().manual_seed(0))
    # distances (2), (4, 2) and (2): whoever has two answers has them 4 and 2 before
    for columns in dealt.columns:
        own = wanted.query[:, None] - columns
        assert sorted((own[i, 0].item(), (columns[i, 1] >= 0).item()) for i in range(3)) == [
            (2, False),
            (2, False),
            (4, True),
        ]


def test_shuffled_tokens_stay_in_their_row_and_padding_stays():
    ids = torch.arange(20).view(2, 10)
    pos = parts.padded([10, 6], "left")
    new = shuffled_ids(ids, pos, torch.Generator().manual_seed(1))
    assert torch.equal(new[1, :4], ids[1, :4])
    assert torch.equal(new.sort(-1).values, ids)
    assert (new != ids)[0].sum() > 4
    assert (new != ids)[1].any()


def test_alignment_error_of_links():
    sure, possible = {(0, 0), (1, 2)}, {(2, 1)}
    rate = alignment.alignment_error_rate
    assert rate(sure, sure) == 0
    assert rate(sure | possible, sure, possible) == 0
    assert rate({(0, 0), (2, 2)}, sure, possible) == pytest.approx(1 - 2 / 4)
    assert rate({(3, 3)}, sure) == 1
    with pytest.raises(DataError, match="at least one link"):
        rate(set(), set())
    # the same sentence counted from 1 and from 0
    first, _ = alignment.read_links("1-1 2-3", 1, 2, 3)
    second, maybe = alignment.read_links("0-0 1-2 1p1", 0, 2, 3)
    assert rate(second, first) == 0
    assert maybe == {(1, 1)}
    with pytest.raises(DataError, match=r"'2-3', counted from 0, lies outside .* is the base right"):
        alignment.read_links("1-1 2-3", 0, 2, 3)
    with pytest.raises(DataError, match="'1:2' is no link"):
        alignment.read_links("1:2", 0, 2, 3)


def test_alignment_error_of_heads_is_that_of_their_links():
    # query 1 has a sure link and gets it, 3 has two possible ones and gets one, 4 has a sure one and misses it
    wanted = roles.asked(GOLD, ROWS)
    links = {(0, 1), (1, 3), (4, 4)}
    expected = alignment.alignment_error_rate(links, {(0, 1), (2, 4)}, {(0, 3), (1, 3)})
    assert alignment.alignment_error(WEIGHTS, wanted).value[0] == pytest.approx(expected)
    assert alignment.alignment_error(WEIGHTS, wanted).value[1] == 1


@pytest.mark.parametrize("name", ["gpt_tiny", "llama_tiny", "encdec_tiny"])
def test_importance_is_the_slope_of_the_loss_of_each_row(name):
    model = parts.model(name, scale=4).double()
    torch.manual_seed(5)
    ids = torch.randint(65, (3, 7))
    targets = torch.randint(65, (3, 7)).masked_fill(torch.rand(3, 7) < 0.3, forward.IGNORED)
    targets[2] = forward.IGNORED
    batch = {"ids": ids, "targets": targets}
    if name == "encdec_tiny":
        batch["src"] = torch.randint(65, (3, 5))
    found = importance.importance(model, [batch], rows_at_once=2)
    assert list(found) == sites(model)

    def loss(site, head, gate, row):
        def turned(heads):
            heads = heads.clone()
            heads[:, head] *= gate
            return heads

        with torch.no_grad(), Tap(model, edit={site.point("heads"): turned}):
            one = forward.rows_of(batch, row, row + 1)
            return forward.losses(model, one).double().sum() / (one["targets"] >= 0).sum()

    for site in (sites(model)[0], sites(model)[-1]):
        for head in (0, 3):
            slopes = [(loss(site, head, 1 + 1e-3, row) - loss(site, head, 1 - 1e-3, row)) / 2e-3 for row in (0, 1)]
            expected = sum(abs(s) for s in slopes) / 2  # the third row asks nothing
            torch.testing.assert_close(found[site][head], expected, rtol=2e-2, atol=1e-4)
    normal = importance.normalised(found)
    assert all(value.norm() == pytest.approx(1) for value in normal.values())
    assert importance.importance(parts.model("bahdanau"), [batch]) == {}
    assert not any(p.grad is not None for p in model.parameters())


def test_a_head_that_is_cut_off_has_no_importance():
    setting = ("data=repeat", "data.n_val=8", *head_models.TINY, "model.n_layers=1")
    model, batch = head_models.new_model(0, *setting), head_models.batches(*setting)[0]
    with torch.no_grad():
        model.layers[0].attention.projection.by_head()["w_o"][2] = 0
    (found,) = importance.importance(model, [batch]).values()
    assert found[2] == 0
    assert (found[[0, 1, 3]] > 0).all()
    with Tap(model, edit={"layers.0.attention.heads": zero_heads([1])}):
        (without,) = importance.importance(model, [batch]).values()
    assert without[1] == 0  # a head that an outer edit switches off
