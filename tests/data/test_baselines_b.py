"""What tasks of words and brackets state of guessing, counted in another way; which share of the rows trains."""

from collections import defaultdict

import numpy as np
import pytest
from test_gold import best_guess
from test_synthetic import IGNORED, data, make

from minitf.data.synthetic.grammar_mix import PARTS
from minitf.data.synthetic.measure_words import ALL_NOUNS, NOUNS
from minitf.errors import ConfigError


def drawn(made, n=20000):
    return made.task.rows(np.random.default_rng(3), n, made.seq_len)


def test_measure_words_guessed_from_the_nearest_noun_and_from_all():
    made = make("measure_words", "data.task.most=2", "data.seq_len=12")
    rows, measure_of = drawn(made), {noun: m for m, nouns in NOUNS.items() for noun in nouns.split()}
    seen, answers = [], []
    for ids, pos, targets in zip(rows["ids"], rows["pos"], rows["targets"], strict=True):
        words = made.task.symbols(ids[pos >= 0].tolist())
        seen.append([measure_of[word] for word in words if word in ALL_NOUNS])
        answers += made.task.symbols(targets[targets != IGNORED].tolist())
    stated = made.baselines()
    nearest = np.mean([measures[-1] == answer for measures, answer in zip(seen, answers, strict=True)])
    assert stated["nearest noun"] == pytest.approx(nearest, abs=0.01)
    any_order = best_guess(answers, [tuple(sorted(measures)) for measures in seen])
    assert stated["order-blind"] == pytest.approx(any_order, abs=0.02)
    alone = make("measure_words", "data.task.most=0").baselines()
    assert alone["nearest noun"] == alone["order-blind"] == alone["best offset"] == 1


def test_grammar_mix_guessed_from_the_token_at_hand_and_within_the_clause():
    made = make("grammar_mix")
    rows, found = drawn(made, 12000), defaultdict(list)
    for role in made.task.roles:
        for i, t in np.argwhere(rows[f"gold.{role}"][..., 0] >= 0).tolist():
            ids = rows["ids"][i, : t + 1].tolist()
            words = made.task.symbols(ids)
            start = max(k for k, word in enumerate(words) if word in (".", "[bos]")) + 1
            known = {"no attention": words[-1]}
            # of the clause only what matters, or there are too many to count: numbers, nouns, values
            clause = words[start:-1]
            if role == "agreement":
                clause = [word[-1] == "s" for word in clause if word not in PARTS["preposition"]]
            elif role != "local":
                clause = [word for word in clause if word in {*PARTS["animal"], *PARTS["thing"], *PARTS["value"]}]
            known["order-blind in the clause"] = (words[-1] if role != "copy" else None, tuple(sorted(clause)))
            found[role].append((known, int(rows["targets"][i, t])))
    n = sum(map(len, found.values()))
    assert all(0.15 < len(asked) / n < 0.35 for asked in found.values())
    stated, ways = made.baselines(), ("no attention", "order-blind in the clause")
    expected = {"local": (1 / 12, 1), "coreference": (1 / 8, 1), "agreement": (1 / 2, 7 / 8), "copy": (1 / 10, 1 / 2)}
    for k, way in enumerate(ways):
        for role, asked in found.items():
            share = best_guess([answer for _, answer in asked], [known[way] for known, _ in asked])
            assert share == pytest.approx(expected[role][k], abs=0.025), (role, way)
        whole = sum(expected[role][k] * len(asked) for role, asked in found.items()) / n
        assert stated[way] == pytest.approx(whole, abs=0.01)


@pytest.mark.parametrize("share", [0.3, 0.4, 0.8])
def test_the_pairs_of_modular_are_shared_out_as_asked(share):
    made = data("modular", f"data.task.train_share={share}", "data.task.modulus=31", "data.n_val=64")
    trained = {tuple(row) for step in range(60) for row in made.train_batch(step)["ids"].tolist()}
    assert len(trained) / 31**2 == pytest.approx(share, abs=0.05)
    n_others = 31**2 - len(trained)
    others = data(
        "modular", f"data.task.train_share={share}", "data.task.modulus=31", f"data.n_val={n_others * 3 // 4}"
    )
    held_out = {tuple(row) for batch in others.val_batches() for row in batch["ids"].tolist()}
    assert len(held_out) == n_others * 3 // 4
    assert not held_out & trained


def test_all_sums_of_a_small_modulus():
    for operation in ("add", "subtract"):
        made = make("modular", "data.task.modulus=3", f"data.task.operation={operation}")
        rows = drawn(made)
        answers = rows["targets"][:, 3]
        any_order = best_guess(answers.tolist(), [tuple(sorted((a, b))) for a, _, b, _ in rows["ids"].tolist()])
        assert made.baselines()["order-blind"] == pytest.approx(any_order, abs=0.02)


def test_two_brackets_of_two_kinds():
    # words of four brackets: ()() and (()), each as likely. Of the four answers three follow their opening bracket
    # at once; the other is one of two kinds, and can be seen without order.
    made = make("dyck", "data.task.n_types=2", "data.task.max_depth=2", "data.seq_len=4")
    stated = made.baselines()
    assert stated["no attention"] == pytest.approx((2 + 1 + 1 / 2) / 4, abs=0.01)
    assert stated["order-blind"] == 1
    deep = make("dyck", "data.task.n_types=1").baselines()
    assert set(deep.values()) == {1.0}


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("modular", "data.seq_len=5", r"data.seq_len \(5\) must be 4"),
        ("modular", "data.task.operation=divide", "must be add or subtract, got 'divide'"),
        ("modular", "data.task.train_share=1.0", r"train_share \(1.0\) must be a number from 0.05 to 0.95"),
        ("dyck", "data.seq_len=7", r"data.seq_len \(7\) must be even"),
        ("measure_words", "data.seq_len=14", r"data.seq_len \(14\) must be at least 15"),
        ("measure_words", "data.task.least=4", r"data.task.least \(4\) is more than data.task.most \(3\)"),
        ("grammar_mix", "data.seq_len=5", r"data.seq_len \(5\) must be at least 6"),
    ],
)
def test_what_cannot_be_made_is_refused(name, override, message):
    with pytest.raises(ConfigError, match=message):
        make(name, override)
