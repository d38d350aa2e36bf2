"""The property matrix: every pair of choices, a sample of all cells, and on demand the full product."""

import itertools
import os
import time
from unittest import mock

import parts
import pytest
import torch
from cover import Space, cover
from laws import (
    LAWS,
    fast_equals_definition,
    hidden_is_hidden,
    memory_has_no_order,
    order_is_in_the_positions,
    padding_changes_nothing,
    pieces_equal_one_pass,
    weights_are_what_is_stated,
)
from matrix import AXES, GROUPS, PRODUCT, SPACE, Case, full
from refused import refused

from minitf.blocks.attend import band, flex
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask import Mask
from minitf.blocks.normalize import hide
from minitf.blocks.position import Position

FULL = "MINITF_FULL_MATRIX" in os.environ
SHARDS = parts.product(**{axis: PRODUCT[axis] for axis in ("score", "normalize", "attention")}) if FULL else [{}]
MOST_FAILURES = 20


def check(cells, record_property):
    """Every law in every cell; one message for all that fail."""
    failures, n, start = [], 0, time.perf_counter()
    for n, cell in enumerate(cells, 1):  # noqa: B007
        try:
            case = Case(cell)
            for law in LAWS:
                law(case)
        except Exception as error:
            failures.append(f"{parts.name(cell)}\n    {type(error).__name__}: {error}")
            if len(failures) == MOST_FAILURES:
                break
    record_property("cells", n)
    found = "\n".join(failures)
    assert not failures, f"{len(failures)} of {n} cells in {time.perf_counter() - start:.0f} s:\n{found}"


@pytest.mark.parametrize("cell", cover(AXES, refused), ids=parts.name)
def test_every_pair_of_choices_keeps_the_laws(cell, record_property):
    check([cell], record_property)


@pytest.mark.parametrize("shard", parts.some_by_default(range(8), 2))
def test_a_sample_keeps_the_laws(shard, record_property):
    check(SPACE.sample(60, seed=shard), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(8, 40))
def test_a_large_sample_keeps_the_laws(shard, record_property):
    check(SPACE.sample(500, seed=shard), record_property)


@pytest.mark.slow
@pytest.mark.skipif(
    not FULL,
    reason="90 minutes of CPU: MINITF_FULL_MATRIX=1 pytest tests/blocks/test_matrix.py -m slow -k full",
)
@pytest.mark.parametrize("shard", SHARDS, ids=parts.name)
def test_the_full_product_keeps_the_laws(shard, record_property):
    check(full(**shard), record_property)


# --- the samples and the laws themselves ---


def test_the_cover_holds_every_pair_that_is_not_refused_and_no_other():
    held = {pair for cell in cover(AXES, refused) for pair in itertools.combinations(cell.items(), 2)}
    assert held == Space(AXES, refused).pairs()
    every = {
        (a, b) for a, b in itertools.combinations([(axis, v) for axis in AXES for v in AXES[axis]], 2) if a[0] != b[0]
    }
    assert {pair for pair in every - held if not refused(*pair)} == set()


def test_the_full_product_is_full_but_for_refused_pairs():
    fixed = {axis: AXES[axis][0] for axis in ("score", "normalize", "mask", "dtype")}
    cells = {tuple((axis, cell[axis]) for axis in ("projection", "position", "attention")) for cell in full(**fixed)}
    every = itertools.product(*([(axis, v) for v in PRODUCT[axis]] for axis in ("projection", "position", "attention")))
    assert cells == {cell for cell in every if not any(refused(*pair) for pair in itertools.combinations(cell, 2))}


@pytest.mark.parametrize(
    ("path", "module", "step", "mask"),
    [
        ("band", band, "_bias", "block_local"),
        ("band", band, "_bias", "sliding_window"),
        ("flex", flex, "block_mask", "bigbird"),
    ],
)
def test_the_ways_for_long_rows_are_taken_here(path, module, step, mask):
    case = Case({**BASE, "path": path, "mask": mask, "dtype": torch.float32})
    taken = mock.patch.object(module, step, side_effect=RuntimeError("taken"))
    with taken, torch.no_grad(), pytest.raises(RuntimeError, match="taken"):
        case.read(case.x)


BASE = {
    **{"score": "scaled_dot", "normalize": "softmax", "projection": "free", "qk_norm": "none", "position": "none"},
    **{
        "mask": "causal",
        "attention": "mha",
        "sizes": "d_model/H",
        "bias": False,
        "dropout": 0.0,
        "dtype": torch.float64,
    },
    **{"padding": "none", "pieces": (4, 1, 2), "path": "sdpa"},
}


@pytest.mark.parametrize("axis", sorted(GROUPS.keys() - {"attention"}))
def test_no_two_choices_are_the_same_on_these_few_tokens(axis):
    outputs = {}
    for choice in AXES[axis]:
        case = Case({**BASE, axis: choice, "padding": "packed"}, seed=0)
        for other, output in outputs.items():
            if {choice, other} == {"document", "full"}:  # every mask keeps documents apart: another name for the same
                continue
            assert (case.output - output).abs().max() > 1e-4, (
                f"{choice} is {other}: give one smaller values in parts.SMALL"
            )
        outputs[choice] = case.output


def two_scales(case):
    case.fast = lambda *args, scale, **where: attend_sdpa(*args, scale=1.01 * scale, **where)


def hidden_weight(case):
    case.block.normalize.forward = lambda scores, visible: hide(scores, torch.ones_like(visible)).softmax(-1)


def wrong_sum(case):
    usual = case.block.normalize.forward
    case.block.normalize.forward = lambda scores, visible: 1.001 * usual(scores, visible)


def one_later(case):
    class OneLater(Mask):
        def rule(self, q_off, k_off):
            return k_off <= q_off + 1

    case.block.mask = OneLater()


def no_padding(case):
    class NoPadding(Mask):
        def visible(self, q_pos, k_pos):
            return (k_pos <= q_pos) | (k_pos < 0)

    case.block.mask = NoPadding()


def blind(case):
    case.block.projection.v = lambda source: case.x.new_zeros(len(source), 4, source.size(1), 4)


def counts_slots(case):
    class Slots(Position):
        uses = frozenset({"bias"})

        def bias(self, q_pos, k_pos):
            return torch.arange(k_pos.size(1)).double().expand(1, 4, q_pos.size(1), -1)

    case.scheme = Slots(d_model=16, d_head=4, n_heads=4, max_len=32, causal=True)


def starts_at_each_piece(case):
    class Places(Position):
        uses = frozenset({"bias"})

        def bias(self, q_pos, k_pos):
            return -(torch.arange(q_pos.size(1))[:, None] - k_pos[:, None]).abs().double().expand(1, 4, -1, -1)

    case.scheme = Places(d_model=16, d_head=4, n_heads=4, max_len=32, causal=True)


def counts_keys(case):
    usual = case.block.score.forward
    case.block.score.forward = lambda q, k: usual(q, k) * k.size(2)


def knows_the_slot(case):
    usual = case.block.score.forward
    case.block.score.forward = lambda q, k: usual(q, k) + torch.arange(k.size(2))


@pytest.mark.parametrize(
    ("law", "damage", "where"),
    [
        (fast_equals_definition, two_scales, {}),
        (weights_are_what_is_stated, hidden_weight, {"path": "definition"}),
        (weights_are_what_is_stated, wrong_sum, {"path": "definition"}),
        (hidden_is_hidden, one_later, {"path": "definition"}),
        (hidden_is_hidden, one_later, {"path": "sdpa"}),
        (hidden_is_hidden, no_padding, {"padding": "left"}),
        (hidden_is_hidden, blind, {"path": "definition"}),
        (padding_changes_nothing, no_padding, {"padding": "left"}),
        (padding_changes_nothing, counts_keys, {"padding": "right", "path": "definition"}),
        (pieces_equal_one_pass, starts_at_each_piece, {}),
        (order_is_in_the_positions, counts_slots, {}),
        (memory_has_no_order, knows_the_slot, {"path": "definition"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_law_notices_its_breach(law, damage, where):
    law(Case({**BASE, **where}))
    case = Case({**BASE, **where})
    damage(case)
    with pytest.raises(AssertionError):
        law(case)
