"""Patterns by hand, and against plain loops."""

import math

import head_loops
import parts
import pytest
import torch

from minitf.analysis.capture import capture
from minitf.analysis.heads import patterns, sink
from minitf.analysis.heads.measure import measure
from minitf.analysis.heads.offsets import offsets
from minitf.analysis.heads.rows import base_columns, counted, first_of_document
from minitf.positions import SEGMENT, from_real, packed


def causal(n, n_batch=1):
    return torch.ones(n, n).tril().bool().expand(n_batch, n, n)


def every(n, n_batch=1):
    return torch.ones(n_batch, n, dtype=torch.bool)


def test_entropy_of_rows_worked_out():
    rows = torch.tensor([[1.0, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0.5, 0.25, 0.25, 0]])
    expected = torch.tensor([0, math.log(3), 1.5 * math.log(2)])
    torch.testing.assert_close(patterns.row_entropy(rows[None, None])[0, 0], expected)
    # rows that do not sum to 1 are judged by where their weight goes, and a row of nothing is no NaN
    torch.testing.assert_close(patterns.row_entropy(rows[None, None] / 3)[0, 0], expected)
    assert patterns.row_entropy(torch.zeros(1, 1, 1, 4)) == 0


def test_uniform_rows_have_the_entropy_ln_n_and_1_when_normalised():
    visible = causal(6)
    weights = (visible / visible.sum(-1, keepdim=True))[None].repeat(1, 2, 1, 1)
    rows = every(6)
    mean = sum(math.log(n) for n in range(1, 7)) / 6
    torch.testing.assert_close(patterns.entropy(weights, rows).value, torch.full((2,), mean).double())
    normalised = patterns.normalised_entropy(weights, visible, rows)
    torch.testing.assert_close(normalised.value, torch.ones(2).double())
    assert normalised.n == 5  # the first row sees one key, whatever its weights
    assert patterns.normalised_entropy(torch.eye(6).expand(1, 1, 6, 6), visible, rows).value == 0


def test_first_rows_are_left_out_only_where_they_see_fewer_keys():
    pos = torch.arange(6)[None]
    assert counted(pos, causal(6)).tolist() == [[False] * 4 + [True] * 2]
    assert counted(pos, causal(6), skip=0).all()
    assert counted(pos, torch.ones(1, 6, 6).bool()).all()
    # rows of a window of 2 are full from the second one on
    assert counted(pos, causal(6).triu(-1)).tolist() == [[False] + [True] * 5]
    # padding on the left, and rows that see nothing, never count
    padded = from_real(torch.tensor([[0, 0, 1, 1, 1, 1]]).bool())
    real = causal(6) & (padded >= 0)[:, None]
    assert counted(padded, real, skip=1).tolist() == [[False] * 3 + [True] * 3]
    assert counted(pos, torch.zeros(1, 6, 6).bool()).sum() == 0
    two = packed([3, 3], 6)[None]
    assert counted(two, causal(6) & (two[:, None] // SEGMENT == two[:, :, None] // SEGMENT), skip=2).tolist() == [
        [False, False, True, False, False, True]
    ]


def test_what_padding_looks_at_does_not_count():
    pos = torch.tensor([[0, 1, 2, -1]])
    visible = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]]).bool()
    assert counted(pos, visible).tolist() == [[False, True, True, False]]
    ids = torch.tensor([[7, 7, 7, 7]])
    left = torch.tensor([[-1, -1, 0, 1]])
    assert patterns.earlier_copies(ids, left).nonzero().tolist() == [[0, 3, 2]]


def test_offsets_are_counted_from_where_the_other_sequence_begins():
    q_pos, k_pos = torch.tensor([[0, 1, 2], [-1, 0, 1]]), torch.tensor([[0, 1, 2, -1], [-1, -1, 0, 1]])
    assert base_columns(q_pos, k_pos, crosses=True).tolist() == [[0, 1, 2], [2, 2, 3]]
    assert base_columns(q_pos, q_pos, crosses=False).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_far_offsets_that_few_rows_can_look_at_do_not_win():
    weights = torch.zeros(1, 1, 8, 8)
    weights[..., 0] = 1  # a sink: the last row alone looks 7 back
    weights[0, 0, 7] = 0  # and a row that looks nowhere
    pos = torch.arange(8)[None]
    found = offsets(weights, base_columns(pos, pos, False), causal(8), every(8))
    assert found.score(6) == 0.5
    assert found.best(least_share=0)[1] == 0.5
    assert [t.item() for t in found.best()] == [4, 0.25]
    assert found.n_largest.sum() == 7


def test_an_induction_pattern_made_by_hand_has_the_score_1():
    # A B C A B C A: each row from the second A on reads what followed its earlier self
    ids = torch.tensor([[1, 2, 3, 1, 2, 3, 1]])
    pos = torch.arange(7)[None]
    weights = torch.zeros(1, 2, 7, 7)
    for i in range(7):
        weights[0, 0, i, max(i - 2, 0)] = 1  # one period before the place that comes next
        weights[0, 1, i, max(i - 1, 0)] = 1
    visible, rows = causal(7), every(7)
    for found in (
        patterns.prefix_matching(weights, ids, pos, visible, rows),
        patterns.periodic_prefix_matching(weights, torch.tensor([3]), 0, visible, rows),
    ):
        assert found.value.tolist() == [1, 0]
        assert found.n == 4
    back = offsets(weights, base_columns(pos, pos, False), visible, rows)
    torch.testing.assert_close(back.score(1), torch.tensor([1 / 6, 1.0]).double())
    assert back.score(2)[0] == 1
    assert [t.tolist() for t in back.best()] == [[2, 1], [1, 1]]
    assert [t.tolist() for t in back.steady()] == [[2, 1], [5 / 7, 6 / 7]]
    assert back.score(9).isnan().all()


def test_prefixes_count_every_earlier_copy_and_only_within_a_document():
    ids = torch.tensor([[1, 2, 1, 3, 1, 0, 1, 1]])
    pos = torch.arange(8)[None]
    expected = {2: [1], 4: [1, 3], 6: [1, 3, 5], 7: [1, 3, 5, 7]}
    found = patterns.successors(ids, pos)[0]
    assert {i: found[i].nonzero().flatten().tolist() for i in range(8) if found[i].any()} == expected
    assert patterns.earlier_copies(ids, pos)[0, 6].nonzero().flatten().tolist() == [0, 2, 4]
    # two documents of four: what follows the last token of the first is no successor of it
    pos = packed([4, 4], 8)[None]
    same = pos[:, None] // SEGMENT == pos[:, :, None] // SEGMENT
    found = patterns.successors(torch.tensor([[1, 2, 3, 4, 4, 1, 4, 1]]), pos)[0] & same[0]
    assert {i: found[i].nonzero().flatten().tolist() for i in range(8) if found[i].any()} == {6: [5], 7: [6]}


def test_the_two_forms_of_prefix_matching_agree_on_repeated_segments():
    torch.manual_seed(1)
    period = torch.tensor([3, 5])
    ids = torch.stack([1 + torch.arange(12) % p for p in period])
    ids = torch.cat([torch.zeros(2, 1).long(), ids], 1)
    pos = torch.arange(13).expand(2, -1)
    weights = torch.rand(2, 3, 13, 13) * causal(13)[0]
    weights[..., 1] = 0  # the one difference: it comes next after a segment, but stands behind the beginning
    visible, rows = causal(13, 2), every(13, 2)
    a = patterns.prefix_matching(weights, ids, pos, visible, rows)
    b = patterns.periodic_prefix_matching(weights, period, 1, visible, rows)
    torch.testing.assert_close(a.value, b.value)
    assert a.n == b.n == 9 + 7


def test_confidence_without_the_first_token():
    weights = torch.tensor([[[[1.0, 0, 0], [0.9, 0.1, 0], [0.2, 0.3, 0.5]]]])
    pos, rows = torch.arange(3)[None], every(3)
    assert patterns.confidence(weights, rows).value == pytest.approx((1 + 0.9 + 0.5) / 3)
    first = first_of_document(pos, pos, False)
    assert patterns.confidence(weights, rows, first).value == pytest.approx((0 + 0.1 + 0.5) / 3)


def test_sink_mass_and_value_ratio_worked_out():
    weights = torch.tensor([[[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.4, 0, 0, 0.6]]]])
    pos, rows, visible = torch.arange(4)[None], every(4), causal(4)
    first = first_of_document(pos, pos, False)
    mass = sink.sink_mass(weights, first, visible, rows & (pos > 0))
    assert mass.value == pytest.approx((0.5 + 0.2 + 0.4) / 3)
    second = sink.sink_mass(weights, first_of_document(pos, pos, False, 1), visible, rows)
    assert second.value == pytest.approx((0.5 + 0.3 + 0) / 3)
    work = torch.tensor([[False, True, False, True]])
    active, dormant = sink.active_and_dormant(weights, first, visible, rows & (pos > 0), work)
    assert [float(active.value), float(dormant.value)] == pytest.approx([0.45, 0.2])
    assert sink.sink_share(torch.tensor([[0.31, 0.3], [0.5, 0.6]])).tolist() == [0.5, 1.0]
    norms = torch.tensor([[[1.0, 4, 2, 9]]])
    real = torch.tensor([[True, True, True, False]])
    assert sink.value_ratio(norms, pos == 0, real).value == pytest.approx(1 / 3)
    assert sink.value_ratio(norms, pos == 0, pos == 0).value.isnan()  # no other token


MLA = ["model/attention=mla", "model.attention.d_latent=6", "model.attention.d_rotary=4"]
WINDOW = ["model/mask=sliding_window", "model.mask.window=3"]
CELLS = [
    ("gpt_tiny", "none", []), ("llama_tiny", "left", []), ("llama_tiny", "left", MLA), ("gpt_tiny", "packed", []),
    ("bert_tiny", "right", []), ("gpt_tiny", "right", WINDOW), ("encdec_tiny", "right", []),
    ("encdec_tiny", "right", MLA), ("bahdanau", "right", []), ("gpt_tiny", "none", ["model/attention=mqa"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "padding", "overrides"), CELLS)
def test_measured_equals_plain_loops(name, padding, overrides):
    model = parts.model(name, *overrides, scale=6)
    torch.manual_seed(2)
    batch = {"ids": torch.randint(5, (3, 12))}
    if padding == "packed":
        batch["pos"] = torch.stack([packed(n, 12) for n in ([6, 5], [12], [2, 3, 7])])
    elif padding != "none":
        batch["pos"] = parts.padded([12, 9, 7], padding)
    if hasattr(model, "encode"):
        batch |= {"src": torch.randint(5, (3, 10)), "src_pos": parts.padded([10, 7, 5], padding)}
    measured = measure(model, [batch], max_bytes=9000)  # some pieces
    for one in capture(model, batch):
        crosses, of = one.site.kind == "cross", measured[one.site].scores
        ids = None if crosses else batch["src" if one.site.kind == "encoder" else "ids"]
        expected = head_loops.loops(one.weights, one.visible, one.q_pos, one.k_pos, ids, crosses=crosses)
        assert len(expected) == 5 if crosses else 8
        for key, value in expected.items():
            torch.testing.assert_close(of[key], value, atol=1e-6, rtol=1e-5, msg=f"{one.site} {key}")
