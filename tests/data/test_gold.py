"""What every task says about its answers: where they must be read, and how far guessing gets."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from parts import some_by_default
from test_synthetic import IGNORED, TASKS, data, make

from minitf.data.synthetic.guessing import answers

# settings small enough to meet every row many times
TINY = {
    "repeat": ["data.task.n_symbols=4", "data.task.least=2", "data.task.most=3", "data.seq_len=6"],
    "reverse": ["data.task.n_symbols=3", "data.seq_len=4"],
    "copy": ["data.task.n_symbols=3", "data.seq_len=7"],
    "who_chases_whom": [],
    "coreference": [],
    "mqar": ["data.task.vocab_size=6", "data.task.n_pairs=1", "data.seq_len=6"],
    "agreement": ["data.task.most=1", "data.seq_len=9"],
    "modular": ["data.task.modulus=5", "data.task.operation=subtract"],
    "dyck": ["data.task.n_types=2", "data.task.max_depth=2", "data.seq_len=8"],
    "measure_words": ["data.task.most=1", "data.seq_len=9"],
    "look_back": ["data.task.n_symbols=3", "data.task.n_back=2", "data.seq_len=5"],
}
NOT_ALONE = {"property"}  # roles that say which of two answers is right, not what it is
SOLVED_BY = {
    ("who_chases_whom", "best offset"),
    ("coreference", "order-blind"),
    ("modular", "order-blind"),
}  # what is no obstacle there
# too many different rows to count: `check_coreference` finds the answer without order, test_baselines_b counts classes
UNCOUNTED = {("coreference", "order-blind"), ("measure_words", "order-blind"), ("measure_words", "nearest noun")}
UNGUIDED = {"copy", "reverse", "sort"}  # the end of what is written has no gold


@pytest.mark.parametrize("name", TASKS)
def test_gold_points_at_tokens_that_the_model_can_see(name):
    made = data(name)
    batch = made.train_batch(0)
    names = [key for key in batch if key.startswith("gold.")]
    assert names == [f"gold.{role}" for role in made.task.roles]
    assert names, "a task without any role"
    text, pos = ("src", "src_pos") if "src" in batch else ("ids", "pos")
    asked = batch["targets"].reshape(*batch["targets"].shape[:2], -1) if "targets" in batch else None
    guided = False
    for key in names:
        gold = batch[key]
        assert gold.shape[:2] == (asked.shape[:2] if asked is not None else (made.batch_size, 1))
        assert gold.min() >= -1
        assert gold.max() < batch[text].shape[1]
        there = gold >= 0
        guided = guided | there.any(-1)
        if pos in batch:
            real = (batch[pos] >= 0).gather(1, gold.clamp_min(0).flatten(1)).view_as(gold)
            assert (real | ~there).all()
        if made.gives == "answers":
            place = np.arange(gold.shape[1])[None, :, None]
            assert (gold.numpy() <= place).all()
    if asked is not None:
        answered = (asked != IGNORED).any(-1)
        assert (answered | ~guided).all(), "gold where nothing is asked"
        bare = int((answered & ~guided).sum())
        if name == "bigram_backcopy":
            assert (guided == ((batch["ids"] >= 1) & (batch["ids"] <= made.task.n_triggers))).all()
        else:
            assert bare == (made.batch_size if name in UNGUIDED else 0)
    else:
        assert guided.all()


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"sort_pointer", "histogram", "majority", "bigram_backcopy"}))
def test_the_token_at_hand_and_those_of_the_roles_say_the_answer(name):
    made = data(name)
    rows = made.task.rows(np.random.default_rng(1), 2000, made.seq_len)
    text = rows["src"] if "src" in rows else rows["ids"]
    readouts = rows["targets"].ndim == 3
    said = defaultdict(set)
    for k, role in enumerate(made.task.roles):
        targets = rows["targets"][..., k] if readouts else rows["targets"]
        gold = rows[f"gold.{role}"]
        if role in NOT_ALONE:
            continue
        for i, t in np.argwhere((targets != IGNORED) & (gold >= 0).any(-1)).tolist():
            read = tuple(sorted(text[i, gold[i, t][gold[i, t] >= 0]].tolist()))
            said[(role, read)].add(int(targets[i, t]))
    assert all(len(found) == 1 for found in said.values())


@pytest.mark.parametrize("name", some_by_default(sorted(TINY), 3))
def test_baselines_are_what_counting_finds(name):
    made = make(name, *TINY[name])
    rows = made.task.rows(np.random.default_rng(2), 20000, made.seq_len)
    found = {way: count(rows, made.gives != "answers") for way, count in COUNTS.items()}
    stated = made.task.baselines(made.seq_len)
    assert stated, "no baseline"
    for way, share in stated.items():
        if (name, way) in UNCOUNTED:
            continue
        assert share == pytest.approx(found[OTHER_NAMES.get(way, way)], abs=0.02), way


@pytest.mark.parametrize(
    ("name", "form", "seq_len"),
    [
        ("copy", "seq2seq", 4),
        ("copy", "tag", 4),
        ("reverse", "answers", 9),
        ("reverse", "tag", 5),
        ("reverse", "tag", 4),
    ],
)
def test_copying_and_reversing_without_order_in_every_form(name, form, seq_len):
    made = make(name, f"data.task.form={form}", "data.task.n_symbols=2", "data.task.least=1", f"data.seq_len={seq_len}")
    rows = made.task.rows(np.random.default_rng(2), 20000, seq_len)
    counted = by_tokens_in_any_order(rows, made.gives != "answers")
    assert made.baselines()["order-blind"] == pytest.approx(counted, abs=0.02)


def test_what_is_counted_is_told_of_every_task():
    for name in TASKS:
        stated = make(name).baselines()
        assert {"no attention", "best offset"} <= set(stated), name
        for way, share in stated.items():
            assert share == 1 if (name, way) in SOLVED_BY else 0 < share < 0.99, (name, way)


def test_guessing_a_reversed_text():
    # the end is guessed after each symbol, any symbol at the start: 2 symbols 1/3, 3 symbols 2/3 of the rows' share
    made = make("reverse", "data.task.n_symbols=8", "data.seq_len=4")
    answers_per_row = (2 + 3) / 2 + 1
    assert made.baselines()["no attention"] == pytest.approx((1 / 8 + 1) / answers_per_row, abs=0.02)


OTHER_NAMES = {"nearest noun": "no attention"}  # that noun is the token at hand


def best_guess(wanted, known):
    """Learned from one half, tried on the other: counted on its own rows a guess seems better than it is."""
    counts, half = defaultdict(Counter), len(wanted) // 2
    for answer, key in zip(wanted[:half], known[:half], strict=True):
        counts[key][answer] += 1
    guess = {key: counter.most_common(1)[0][0] for key, counter in counts.items()}
    return sum(guess.get(k) == a for a, k in zip(wanted[half:], known[half:], strict=True)) / (len(wanted) - half)


def asked_places(rows):
    if rows.get("targets", np.zeros(1)).ndim < 3:
        row, place, answer = answers(rows)
        return [(int(i), int(t), 0, int(a)) for i, t, a in zip(row, place, answer, strict=True)]
    return [(i, t, k, int(rows["targets"][i, t, k])) for i, t, k in np.argwhere(rows["targets"] != IGNORED).tolist()]


def by_token(rows, sees_later):
    asked = asked_places(rows)
    return best_guess([a for *_, a in asked], [(k, int(rows["ids"][i, t])) for i, t, k, _ in asked])


def by_tokens_in_any_order(rows, sees_later):
    asked = asked_places(rows)
    real = rows["pos"] >= 0 if "pos" in rows else np.ones_like(rows["ids"], dtype=bool)
    known = []
    for i, t, k, _ in asked:
        end = None if sees_later and "src" not in rows else t + 1
        seen = sorted(rows["ids"][i, :end][real[i, :end]].tolist())
        source = sorted(rows["src"][i][rows["src_pos"][i] >= 0].tolist()) if "src" in rows else []
        known.append((k, int(rows["ids"][i, t]), tuple(seen), tuple(source)))
    return best_guess([a for *_, a in asked], known)


def by_one_token_at_a_distance(rows, sees_later):
    asked = asked_places(rows)
    text = rows["src"] if "src" in rows else rows["ids"]
    pos = rows.get("src_pos" if "src" in rows else "pos")
    real = np.ones_like(text, dtype=bool) if pos is None else pos >= 0
    width = text.shape[1]
    shares = []
    for offset in range(1 - width if sees_later else 0, width):
        columns = [t - offset for _, t, _, _ in asked]
        known = [
            (k, int(text[i, s])) if 0 <= s < width and real[i, s] else (k, None)
            for (i, _, k, _), s in zip(asked, columns, strict=True)
        ]
        shares.append(best_guess([a for *_, a in asked], known))
    return max(shares)


COUNTS = {
    "no attention": by_token,
    "order-blind": by_tokens_in_any_order,
    "best offset": by_one_token_at_a_distance,
}
