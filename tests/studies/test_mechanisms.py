"""The studies of mechanisms with fewer steps: each still shows its contrast."""

import pytest

from minitf.studies.cell import run_cell
from minitf.studies.study import load


def scores(study, cells, steps=None):
    more = [] if steps is None else [f"trainer.max_steps={steps}"]
    return [run_cell(load(study), cell, seed=0, more=more).scores for cell in cells]


@pytest.mark.slow
def test_two_layers_copy_one_does_not_unless_its_keys_are_smeared():
    two, one, smeared = scores("induction", ("two layers", "one layer", "one layer, smeared keys"), steps=300)
    assert min(two["copied"], smeared["copied"]) > 0.9 > 0.5 > one["copied"]
    assert two["prefix"] > 0.5 > one["prefix"]
    assert two["in_context"] < one["in_context"] - 1


@pytest.mark.slow
def test_more_is_lost_without_induction_heads_than_without_others():
    (found,) = scores("induction_sets", ["three layers"])
    assert found["full"] > 0.9
    assert found["without_induction"] < 0.5
    assert found["beyond_mean"] > 0.2


@pytest.mark.slow
def test_rows_matter_where_there_is_something_to_copy():
    (found,) = scores("permutation_rows", ["two layers"], steps=350)
    assert found["0.permute.copied"] > 0.8
    assert found["1.permute.copied"] > 0.8
    assert found["0.permute.first"] < found["0.permute.copied"] - 0.4
    # a longer segment has stood there less often
    assert found["8-9 symbols.1.permute.accuracy"] < found["1.permute.accuracy"]


@pytest.mark.slow
def test_the_scale_is_needed_with_large_scores_and_not_with_small_ones():
    scaled, plain = scores("scale_training", ("d 32, scaled", "d 32, plain"), steps=300)
    (small,) = scores("scale_small_init", ["d 24, plain"])
    assert scaled["copied"] > 0.9 > 0.5 > plain["copied"]
    assert small["copied"] > 0.9


@pytest.mark.slow
def test_a_code_or_a_second_causal_layer_tells_order():
    cells = ("encoder, no code", "encoder, rope", "causal, one layer, no code", "causal, two layers, no code")
    blind, rope, one, two = scores("order", cells, steps=200)
    assert max(blind["accuracy"], one["accuracy"]) < 0.6
    assert max(blind["swap"], one["swap"]) < 1e-4
    assert min(rope["accuracy"], two["accuracy"]) > 0.9


@pytest.mark.slow
def test_only_equal_queries_and_keys_break_copying():
    free, tied, equal = scores("tied", ("free", "K = V", "Q = K"))
    assert free["copied"] > 0.95
    assert tied["copied"] > 0.6 > 0.4 > equal["copied"]


@pytest.mark.slow
def test_one_matrix_at_zero_learns_and_two_do_not():
    queries, both = scores("zero_start", ("zero queries", "zero both"))
    assert queries["copied"] > 0.9 > 0.4 > both["copied"]
    assert both["start.gradient_w_q"] == both["start.gradient_w_k"] == 0
