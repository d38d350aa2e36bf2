"""Historical studies: their measures, probes and contrasts by hand, and one that trains."""

import numpy as np
import pytest
import torch

from minitf.config import check, compose
from minitf.errors import ConfigError
from minitf.studies import factorial
from minitf.studies.cell import run_cell
from minitf.studies.loop import prepare
from minitf.studies.measures.lengths import by_length
from minitf.studies.probes import speed
from minitf.studies.result import Result
from minitf.studies.study import load

TRAINED = {"bottleneck": ["data.n_val=64"], "evolution": ["data.n_val=8"]}
TIMED = ("rnn_speed", "rnn_writing", "score_speed")
COPY = [
    *("data=copy", "data.task.form=seq2seq", "data.seq_len=9", "data.n_val=64", "task=seq2seq"),
    *("model=gru_none", "model.d_model=8", "optim=adamw", "trainer.precision=32-true"),
]


class Forgetful(torch.nn.Module):
    """Writes the source and the end, but for symbols from the fifth place on."""

    def __init__(self, n_symbols):
        super().__init__()
        self.end = n_symbols

    def forward(self, src, src_pos, ids, pos):
        n = (src_pos >= 0).sum(1, keepdim=True)
        place = torch.arange(ids.size(1))
        said = torch.nn.functional.pad(src, (0, 1))
        said = said.masked_fill(place >= 4, self.end + 1).masked_fill(place == n, self.end)
        return torch.nn.functional.one_hot(said, self.end + 2).float()


def copying():
    cfg = compose("train", COPY)
    check(cfg, "train", COPY)
    return prepare(cfg)


def test_long_rows_and_short_ones_are_scored_apart():
    subject = copying()
    subject.model = Forgetful(subject.data.task.n_symbols)
    found = by_length(subject, role="copy", upto=[4, 6, 8])
    lengths = torch.cat([(batch["src_pos"] >= 0).sum(1) for batch in subject.data.val_batches()])
    for low, high in ((1, 4), (5, 6), (7, 8)):
        n = lengths[(lengths >= low) & (lengths <= high)]
        assert found[f"accuracy.{high}"] == pytest.approx(float(n.clamp(max=4).sum() / n.sum()))
        assert found[f"exact.{high}"] == (high == 4)
    assert found["fall"] == pytest.approx(1 - found["accuracy.8"])


@pytest.mark.parametrize(
    ("role", "upto", "says"),
    [
        ("copy", [8, 4], "rising lengths"),
        ("copy", [4, 6], "longer than 6"),
        ("copy", [1, 8], "upto=1"),
        ("sort", [4, 8], "no role 'sort'; there are: copy"),
    ],
)
def test_groups_of_lengths_that_cannot_be(role, upto, says):
    with pytest.raises(ConfigError, match=says):
        by_length(copying(), role=role, upto=upto)


def made(values):
    return [Result("made", cell, seed, {"x": value}) for cell, of in values.items() for seed, value in enumerate(of)]


def test_main_effects_and_interactions_by_hand():
    # a gives 2, b gives 3, both together 1 more, c nothing; the second seed has 10 everywhere and a gives 4
    def value(a, b, seed):
        return (10 + 4 * a if seed else 2 * a) + 3 * b + a * b

    cells = {f"a{a}, b{b}, c{c}": [value(a, b, s) for s in range(2)] for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    found = {c.cells: c.differences for c in factorial.effects(list(cells), made(cells), "x")}
    assert found == {
        ("a1", "a0"): {0: 2.5, 1: 4.5},
        ("b1", "b0"): {0: 3.5, 1: 3.5},
        ("c1", "c0"): {0: 0.0, 1: 0.0},
        ("a1 beside b1", "a1 beside b0"): {0: 1.0, 1: 1.0},
        ("a1 beside c1", "a1 beside c0"): {0: 0.0, 1: 0.0},
        ("b1 beside c1", "b1 beside c0"): {0: 0.0, 1: 0.0},
    }


def test_effects_of_three_levels_are_against_the_first():
    cells = {"x, low": [1.0], "x, mid": [2.0], "x, high": [4.0], "y, low": [1.0], "y, mid": [4.0], "y, high": [4.0]}
    found = {c.cells: c.differences[0] for c in factorial.effects(list(cells), made(cells), "x")}
    assert found == {
        ("y", "x"): pytest.approx(2 / 3),
        ("mid", "low"): 2.0,
        ("high", "low"): 3.0,
        ("y beside mid", "y beside low"): 2.0,
        ("y beside high", "y beside low"): 0.0,
    }


def test_a_seed_that_lacks_a_cell_is_left_out():
    cells = {"a0, b0": [1.0, 1.0], "a0, b1": [1.0, np.nan], "a1, b0": [2.0, 2.0], "a1, b1": [2.0, 2.0]}
    assert {tuple(c.differences) for c in factorial.effects(list(cells), made(cells), "x")} == {(0,)}


@pytest.mark.parametrize("cells", [["a", "b"], ["a, x", "a, y", "b, x"], ["a, x", "a, y"], ["a, x", "b"]])
def test_cells_that_are_no_combinations_have_no_effects(cells):
    assert factorial.levels(cells) is None
    assert factorial.effects(cells, [], "x") == ()


def test_the_steps_from_bahdanau_are_three_factors_of_two():
    study = load("evolution")
    assert [len(of) for of in factorial.levels(list(study.cells))] == [2, 2, 2]

    def size(cell):
        cfg = compose("train", [*study.overrides(cell), "data.n_val=8"])
        return sum(p.numel() for p in prepare(cfg).model.parameters())

    sizes = {cell: size(cell) for cell in study.cells if cell.count("no W_Q") + cell.count("K = V") < 2}
    assert sizes["own V, W_Q, dot"] - sizes["own V, no W_Q, dot"] == 2 * 48 * 48  # two layers
    assert sizes["own V, W_Q, dot"] - sizes["K = V, W_Q, dot"] == 2 * 48 * 48
    assert sizes["own V, W_Q, additive"] - sizes["own V, W_Q, dot"] == 2 * 2 * (2 * 24 * 24 + 24)


def test_additive_scores_of_the_probe_are_those_of_attention():
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    later = torch.full((5, 5), float("-inf")).triu(1)
    mine = speed._plain(speed.ScaledDot(d_head=4, n_heads=2), q, k, v, later)
    torch.testing.assert_close(mine, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("name", [*TRAINED, *TIMED])
def test_every_study_can_be_tried(name):
    study = load(name)
    first, *_, last = list(study.cells) * 2
    for cell in [first, last] if name in TIMED else [first]:
        found = run_cell(study, cell, 0, TRAINED.get(name, ()), smoke=True).scores
        asked = {e.metric for e in study.expect if cell in e.cells} | {study.metric} | set(study.figures.get(cell, ()))
        assert asked <= set(found)
        if name in TIMED:
            assert found[f"{study.metric}_low"] <= found[study.metric] <= found[f"{study.metric}_high"]


def test_a_longer_try_differs_in_its_steps_alone():
    short, longer = load("bottleneck"), load("bottleneck_longer")
    assert set(short.base) ^ set(longer.base) == {"trainer.max_steps=400", "trainer.max_steps=1200"}
    assert longer.cells["one vector"] == short.cells["one vector"]
    assert longer.measures == short.measures


def test_a_cache_makes_writing_behind_a_long_text_cheaper():
    arguments = {"model": ["model=encdec_tiny", "model.d_model=32"], "short": 4, "long": 512, "rounds": 2, "steps": 2}
    kept, again = (speed.writing(0, cached=cached, **arguments)["long"] for cached in (True, False))
    assert kept < again


@pytest.mark.slow
def test_attention_repairs_what_one_vector_loses():
    study = load("bottleneck")
    vector, dot = (run_cell(study, cell, 0).scores for cell in ("one wider vector", "dot"))
    assert vector["fall"] > 0.2
    assert dot["fall"] < 0.1
    assert dot["accuracy.16"] > vector["accuracy.16"] + 0.2
