"""Every synthetic task: right answers, batches that depend on seed and step only, two splits without a common row."""

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import parts
import pytest
import torch

from minitf.config import build_data, compose, config_dir
from minitf.data.arrays import ValRows
from minitf.data.synthetic.bigram_backcopy import BigramBackcopy
from minitf.data.synthetic.coreference import ANIMALS, OF_ANIMALS, THINGS
from minitf.data.synthetic.grammar_mix import PARTS
from minitf.data.synthetic.majority import Majority
from minitf.data.synthetic.measure_words import NOUNS
from minitf.data.synthetic.module import SyntheticData, _chance
from minitf.data.synthetic.reverse import Reverse
from minitf.errors import ConfigError, DataError

SYNTHETIC = "minitf.data.synthetic.module.SyntheticData"
TASKS = [name for name in parts.options("data") if SYNTHETIC in (config_dir() / f"data/{name}.yaml").read_text()]
IGNORED = -100


@cache
def composed(name):
    return compose("train", [f"data={name}"])


def make(name, *overrides):
    cfg = composed(name).copy()
    cfg.merge_with_dotlist(list(overrides))
    return build_data(cfg)


def data(name, *overrides):
    return make(name, *overrides).prepare(lambda line: None)


def real(row, pos):
    return row[pos >= 0].tolist()


def check_reverse(row, made):
    src, wanted = real(row["src"], row["src_pos"]), real(row["targets"], row["pos"])
    end = made.task.n_symbols
    assert wanted == [*src[::-1], end]
    assert real(row["ids"], row["pos"]) == [end, *src[::-1]]


def check_sort_pointer(row, made):
    src, wanted = real(row["src"], row["src_pos"]), real(row["targets"], row["pos"])
    assert [src[place] for place in wanted] == sorted(set(src))
    assert real(row["ids"], row["pos"]) == [made.task.n_numbers, *sorted(src)[:-1]]


def check_majority(row, made):
    (first, n), *rest = Counter(real(row["ids"], row["pos"])).most_common()
    assert first == row["label"]
    assert not rest or rest[0][1] < n


def check_histogram(row, made):
    ids = real(row["ids"], row["pos"])
    assert real(row["targets"], row["pos"]) == [min(ids.count(i), made.task.most) - 1 for i in ids]


def check_copy(row, made):
    ids = real(row["ids"], row["pos"])
    end = ids.index(made.task.n_symbols)
    asked = [answer for answer in row["targets"].tolist() if answer != IGNORED]
    assert asked == [*ids[:end], made.task.n_symbols]
    assert ids[end + 1 :] == ids[:end]
    assert row["targets"].tolist()[end : 2 * end + 1] == asked


def check_sort(row, made):
    src, wanted = real(row["src"], row["src_pos"]), real(row["targets"], row["pos"])
    assert wanted == [*sorted(src), made.task.n_symbols]
    assert real(row["ids"], row["pos"]) == [made.task.n_symbols, *sorted(src)]


def check_repeat(row, made):
    ids, targets = row["ids"].tolist(), row["targets"].tolist()
    assert ids[0] == 0
    period = ids.index(ids[1], 2) - 1 if ids[1] in ids[2:] else len(ids) - 1
    text = [*ids[1:], targets[-1]]
    assert len(set(text[:period])) == period
    assert all(text[i] == text[i - period] for i in range(period, len(text)))
    assert targets == [IGNORED] * period + text[period:]


def check_look_back(row, made):
    ids = row["ids"].tolist()
    for t, targets in enumerate(row["targets"].tolist()):
        assert targets == [ids[t - k] if t >= k else IGNORED for k in range(1, made.task.n_back + 1)]


def check_bigram_backcopy(row, made):
    ids, targets = row["ids"].tolist(), row["targets"].tolist()
    assert ids[0] == 0
    assert targets[:-1] == ids[1:]
    for t, token in enumerate(ids):
        if 1 <= token <= made.task.n_triggers:
            assert targets[t] == ids[t - 1]


def test_another_chain_has_other_transitions():
    first, same, other = (BigramBackcopy(24, 3, **own) for own in ({}, {"chain": 0}, {"chain": 1}))
    assert (first.transitions == same.transitions).all()
    assert abs(first.transitions - other.transitions).max() > 0.1
    with pytest.raises(ConfigError, match="chain"):
        BigramBackcopy(24, 3, chain=-1)


def check_mqar(row, made):
    ids, targets, half = row["ids"].tolist(), row["targets"].tolist(), made.task.vocab_size // 2
    n = made.task.n_pairs
    value_of = dict(zip(ids[: 2 * n : 2], ids[1 : 2 * n : 2], strict=True))
    assert len(value_of) == len(set(value_of.values())) == n
    assert all(0 < key < half <= value for key, value in value_of.items())
    asked = [t for t, answer in enumerate(targets) if answer != IGNORED]
    assert sorted(ids[t] for t in asked) == sorted(value_of)
    assert all(t >= 2 * n and targets[t] == value_of[ids[t]] for t in asked)


def check_who_chases_whom(row, made):
    words = made.task.symbols(row["ids"].tolist())
    assert words[1].endswith("s")
    assert words[3] == "who?"
    assert made.task.symbols(row["targets"].tolist()[-1:]) == words[:1] != [words[2]]


def check_agreement(row, made):
    words = made.task.symbols(real(row["ids"], row["pos"]))
    inner = words[words.index(",") + 1 :] if "," in words else words
    assert (words[0] == "under") == ("," in words)
    assert inner[0] == "the"
    last = len(words) - 1
    assert row["targets"].tolist()[:last] == [IGNORED] * last
    assert made.task.symbols([int(row["targets"][last])]) == ["are" if inner[1].endswith("s") else "is"]


def check_coreference(row, made):
    the, first, _, _, second, *_, said, question = made.task.symbols(real(row["ids"], row["pos"]))
    assert (the, question) == ("the", "who?")
    animals, things = set(ANIMALS["en"]), set(THINGS["en"])
    meant = animals if said in OF_ANIMALS["en"] else things
    assert len({first, second} & animals) == len({first, second} & things) == 1
    assert made.task.symbols([int(row["targets"][9])]) == [({first, second} & meant).pop()]


def check_modular(row, made):
    a, _, b, _ = row["ids"].tolist()
    sign = made.task.symbols(row["ids"].tolist())[1]
    assert row["targets"].tolist() == [IGNORED] * 3 + [(a + b if sign == "+" else a - b) % made.task.modulus]


def check_dyck(row, made):
    ids, targets, n = row["ids"].tolist(), row["targets"].tolist(), made.task.n_types
    assert ids[0] == 0
    still_open = []
    for t, token in enumerate(ids):
        if 1 <= token <= n:
            still_open.append(token)
        elif token > n:
            assert still_open.pop() == token - n
        assert len(still_open) <= made.task.max_depth
        following = [*ids, targets[-1]][t + 1]
        assert targets[t] == (following if following > n else IGNORED)
    assert still_open == [targets[-1] - n]


def check_measure_words(row, made):
    words = made.task.symbols(real(row["ids"], row["pos"]))
    topic = words[words.index("，") - 1]
    (wanted,) = (measure for measure, nouns in NOUNS.items() if topic in nouns.split())
    last = len(words) - 1
    assert words[last] in "一两三"
    assert row["targets"].tolist()[:last] == [IGNORED] * last
    assert made.task.answer_symbols([int(row["targets"][last])]) == [wanted]


def check_grammar_mix(row, made):
    names = made.task.symbols(range(made.facts["vocab_size"]))
    targets = [names[i] if i >= 0 else None for i in row["targets"].tolist()]
    words = [names[i] for i in row["ids"].tolist()]
    assert len(set(names)) == len(names)
    start, n_answers = 1, 0
    for clause in " ".join(words[1:]).split(" ."):
        clause = clause.split()
        answers = targets[start : start + len(clause)]
        start += len(clause) + 1
        asked = [i for i, answer in enumerate(answers) if answer is not None]
        n_answers += len(asked)
        if not asked:
            continue
        (at,) = asked
        answer = answers[at]
        assert clause[at + 1 :] in ([answer], [])
        if "it" in clause:
            nouns, said = {clause[0], clause[2]}, clause[4]
            assert (answer in PARTS["animal"]) == (said in PARTS["of_animal"])
            assert answer in nouns
            assert len(nouns & set(PARTS["animal"])) == 1
        elif clause[0] in PARTS["name"]:
            assert answer == {clause[0]: clause[1], clause[2]: clause[3]}[clause[4]]
        elif clause[0] in PARTS["verb"]:
            assert PARTS["particle"].index(answer) == PARTS["verb"].index(clause[0])
        else:
            assert answer == ("are" if clause[0].endswith("s") else "is")
    assert n_answers == sum(answer is not None for answer in targets)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def test_every_task_has_its_check():
    assert set(CHECKS) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_the_answers_are_right_and_only_real_places_are_scored(name):
    made = data(name)
    batch = made.train_batch(3)
    assert len(batch["ids"]) == made.batch_size
    for i in range(made.batch_size):
        row = {key: value[i] for key, value in batch.items() if key != "n_scored"}
        CHECKS[name](row, made)
        for ids, pos in (("src", "src_pos"), ("ids", "pos")):
            if pos in row:
                n = int((row[pos] >= 0).sum())
                assert row[pos].tolist() == [*range(n), *[-1] * (len(row[pos]) - n)]
            if ids in row:
                assert row[ids].min() >= 0
                assert row[ids].max() < made.facts["src_vocab_size" if ids == "src" else "vocab_size"]
        if "targets" in row and "pos" in row:
            assert (row["targets"][row["pos"] < 0] == IGNORED).all()
            assert made.gives == "answers" or (row["targets"][row["pos"] >= 0] != IGNORED).all()
    scored = (batch["targets"] != IGNORED).sum() if "targets" in batch else len(batch["label"])
    assert batch["n_scored"] == scored


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_a_function_of_seed_and_step_and_its_parts_are_the_whole(name):
    made, again, other = data(name), data(name), data(name, "seed=1")
    whole = made.train_batch(5)
    parts_of = [again.train_batch(5, micro, 4) for micro in range(4)]
    for key, value in whole.items():
        if key == "n_scored":
            assert {part[key] for part in parts_of} == {value}
        else:
            assert torch.equal(torch.cat([part[key] for part in parts_of]), value)
            assert value.dtype == torch.int64
    question = "src" if "src" in whole else "ids"
    assert not torch.equal(made.train_batch(6)[question], whole[question])
    assert not torch.equal(other.train_batch(5)[question], whole[question])


@pytest.mark.parametrize("name", TASKS)
def test_no_row_is_in_both_splits_and_every_seed_has_the_same_validation(name):
    made, other = data(name), data(name, "seed=7", "data.batch_size=8")

    def rows(batches):
        asked = [torch.cat([batch[key] for key in made.task.question], 1) for batch in batches]
        return [tuple(row) for row in torch.cat(asked).tolist()]

    val = rows(made.val_batches())
    assert len(val) == len(set(val)) == made.n_val
    assert val == rows(other.val_batches())
    assert not set(val) & set(rows(made.train_batch(step) for step in range(40)))
    assert made.record["sha256"] == other.record["sha256"] != data(name, "data.n_val=100").record["sha256"]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_share_the_validation_rows_and_do_as_many_batches(world_size):
    arrays = {"ids": np.arange(22).reshape(11, 2), "label": np.arange(11)}
    shares = [list(ValRows(arrays, 2, rank, world_size)) for rank in range(world_size)]
    assert {len(share) for share in shares} == {-(-11 // (2 * world_size))}
    labels = [label for share in shares for batch in share for label in batch["label"].tolist() if label != IGNORED]
    assert sorted(labels) == list(range(11))


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("reverse", "data.task.n_symbols=1", "n_symbols .1. must be a whole number from 2 to 4096"),
        ("reverse", "data.seq_len=2", r"rows of data.seq_len=2 hold 1 symbols .* fewer than data.task.least=2"),
        ("copy", "data.task.form=other", r"data.task.form must be one of seq2seq, answers, tag, got 'other'"),
        ("repeat", "data.task.most=30", r"least \(4\) <= most \(30\) <= n_symbols \(23\) must hold"),
        ("repeat", "data.seq_len=12", r"data.seq_len \(12\) must be at least data.task.most \+ 2 \(13\)"),
        ("look_back", "data.seq_len=4", r"data.seq_len \(4\) must be larger than data.task.n_back \(4\)"),
        ("mqar", "data.task.n_pairs=128", r"vocab_size \(256\) must be even, and leave keys enough"),
        ("mqar", "data.seq_len=15", r"data.seq_len \(15\) must be at least 16"),
        ("who_chases_whom", "data.seq_len=5", r"data.seq_len \(5\) must be 4"),
        ("who_chases_whom", "data.task.language=fr", "must be en or zh, got 'fr'"),
        ("agreement", "data.seq_len=14", r"data.seq_len \(14\) must be at least 15"),
        ("coreference", "data.task.variant=other", "must be property or order, got 'other'"),
        ("bigram_backcopy", "data.task.n_triggers=22", r"at most 21 of n_symbols \(24\)"),
        ("sort_pointer", "data.seq_len=17", r"must lie between 2 and data.task.n_numbers \(16\)"),
        ("majority", "data.seq_len=2", "at least 3"),
        ("histogram", "data.seq_len=3", r"largest tag, data.task.most=4"),
        ("histogram", "data.n_val=0", "data.n_val"),
    ],
)
def test_what_cannot_be_made_is_refused(name, override, message):
    with pytest.raises(ConfigError, match=message):
        make(name, override)


def test_too_few_different_rows_are_noticed():
    with pytest.raises(DataError, match="too few different rows"):
        SyntheticData(Reverse(2, 2, "seq2seq"), seq_len=4, batch_size=2, n_val=512, seed=0).prepare(lambda line: None)


def test_as_many_validation_rows_as_there_are_can_be_had():
    task = Reverse(3, 7, "seq2seq")  # 3**7 rows, most of them seen again and again before the last one comes
    every = np.array(list(product(range(3), repeat=7)))
    found = SyntheticData(task, seq_len=8, batch_size=2, n_val=1, seed=0)
    keys = found._keys({"src": every, "src_pos": np.tile(np.arange(7), (len(every), 1))})
    n = sum(_chance(key) < task.val_share for key in keys)
    whole = SyntheticData(task, seq_len=8, batch_size=2, n_val=n, seed=0).prepare(lambda line: None)
    assert len(np.unique(whole._val["src"], axis=0)) == n
    with pytest.raises(DataError, match=f"{n} of {n + 1} were found"):
        SyntheticData(task, seq_len=8, batch_size=2, n_val=n + 1, seed=0).prepare(lambda line: None)


def test_a_tie_never_remains():
    rows = Majority(2).rows(np.random.default_rng(0), 2000, 6)
    for ids, pos, label in zip(rows["ids"], rows["pos"], rows["label"], strict=True):
        assert 2 * (ids[pos >= 0] == label).sum() > (pos >= 0).sum()
