"""`evaluate` on a small run of each kind: what it says is what training said, and what decoding really gives."""

import json
import math
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from parts import some_by_default
from runs import command, train_here

from minitf.commands.evaluate import evaluate
from minitf.commands.score.measure import Split, measure, until
from minitf.config import build, build_data, compose, set_data_facts
from minitf.data.items import Item, ItemSource
from minitf.data.items import Split as Items
from minitf.data.items.module import ItemData
from minitf.errors import ConfigError, DataError
from minitf.training.metrics import read_metrics
from minitf.training.objective.seq2seq import Seq2Seq

SHORT = [
    "trainer.max_steps=4",
    "trainer.val_every=2",
    "trainer.log_every=2",
    "schedule.warmup_steps=1",
    "data.n_val=40",
]
SHORT += ["data.batch_size=16", "model.d_model=32", "trainer.precision=32-true"]  # 40 rows: the last batch is ragged
KINDS = {
    "answer": (["data=repeat", "task=answer"], {"loss", "accuracy", "exact"}),
    "seq2seq": (
        ["data=reverse", "model=encdec_tiny", "task=seq2seq"],
        {"loss", "accuracy", "exact", "token_error_rate", "sequence_error_rate"},
    ),
    "pointer": (["data=sort_pointer", "model=pointer_tiny", "task=pointer"], {"loss", "accuracy", "exact"}),
    "classify": (
        ["data=majority", "model=bert_tiny", "task=classify", "model/head=classify"],
        {"loss", "accuracy", "macro_f1"},
    ),
    "tag": (
        ["data=histogram", "model=bert_tiny", "task=tag", "model/head=tag"],
        {"loss", "accuracy", "exact", "macro_f1"},
    ),
    "readouts": (
        ["data=look_back", "model=bert_tiny", "task=tag", "model/head=tag"],
        {"loss", "accuracy", "exact", "macro_f1"},
    ),
}


def scored(folder, *overrides):
    """What scores.json holds, and the table."""
    text = evaluate(compose("evaluate", list(overrides)), {"run": str(folder)})
    return json.loads((folder / "scores.json").read_text(encoding="utf-8")), text


def last_of_training(folder):
    found = {}
    for row in read_metrics(folder):
        found |= {name[4:]: value for name, value in row.items() if name.startswith("val/")}
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder of a run of each kind, which is trained when it is first asked for."""
    base = tmp_path_factory.mktemp("kinds")

    class Runs(dict):
        def __missing__(self, kind):
            self[kind] = train_here(base / kind, [*KINDS[kind][0], *SHORT])
            return self[kind]

    return Runs()


@pytest.mark.parametrize("kind", some_by_default(KINDS, 2))
def test_every_kind_has_its_scores_and_they_are_those_of_training(runs, kind):
    found, text = scored(runs[kind], "checkpoint=last")
    assert set(found["scores"]) == KINDS[kind][1]
    assert found["rows"] == 40
    assert found["whole"]
    for name, value in last_of_training(runs[kind]).items():
        assert found["scores"][name] == pytest.approx(value, rel=1e-5), name
    assert found["solved"] == 1.0 or kind == "readouts"
    assert found["baselines"]
    for name, value in found["baselines"].items():
        assert any(line.startswith(name) and f"{value:.4f}" in line for line in text.splitlines())
    assert "a solved model" in text
    assert "step 4" in text


def test_text_has_bits_per_byte_of_the_whole_split_alone(toy, tmp_path):
    folder = shutil.copytree(toy, tmp_path / "run")  # others look at what lies in the folder of training
    found, text = scored(folder, "checkpoint=last")
    assert set(found["scores"]) == {"loss", "bits_per_byte"}
    expected = last_of_training(folder)["bits_per_byte"]
    assert found["scores"]["bits_per_byte"] == pytest.approx(expected, rel=0.01)  # training may have read in bf16
    assert "witten_bell_byte_5gram_bits_per_byte" in text
    part, text = scored(folder, "n=3")
    assert set(part["scores"]) == {"loss"}
    assert part["rows"] == 3
    assert "first 3 rows" in text


def test_sequence_error_rate_is_what_exact_match_leaves(runs):
    scores = scored(runs["seq2seq"])[0]["scores"]
    assert scores["sequence_error_rate"] == pytest.approx(1 - scores["exact"])


def test_training_rows_are_those_of_the_first_steps(runs):
    found, _ = scored(runs["tag"], "split=train", "n=20")
    assert found["rows"] == 20
    assert found["split"] == "the training split"
    model_free = build_data(OmegaConf.load(runs["tag"] / "config.yaml")).prepare(lambda line: None)
    rows = torch.cat([batch["ids"] for batch in Split(model_free, "train", 20)])
    wanted = torch.cat([model_free.train_batch(step)["ids"] for step in (0, 1)])[:20]
    assert torch.equal(rows, wanted)


class Words(ItemSource):
    """Two right answers for each word, of several lengths."""

    name, gives = "words", "seq2seq"

    def depends_on(self):
        return {"version": 1}

    def split(self, progress):
        train = [Item(list("ab" * n), list("xy" * n)) for n in (1, 2, 3)]
        val = [Item(list("ab" * n), list("x" * n), others=[list("y" * (n + 1))]) for n in (1, 2, 3, 1, 2)]
        return Items(train, val, {"licence": "none"}, {})


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    data = ItemData(Words(), seq_len=12, batch_size=2, seed=0).prepare(lambda line: None)
    cfg = compose("train", ["data=reverse", "model=encdec_tiny", "task=seq2seq", "model.d_model=32", "data.seq_len=12"])
    set_data_facts(cfg, **data.facts)
    return data, build(cfg.model).eval()


def test_any_reference_counts_for_rows_of_several_lengths(words, monkeypatch):
    data, model = words
    x, y = data._symbols.answers.index("x"), data._symbols.answers.index("y")
    # what is written for the sources of 2, 4, 6, 2 and 4 symbols: right, right in another way, one edit from both ...
    rows = {2: [x], 4: [y, y, y], 6: [x, x, y]}

    def write(model, begin, *, memory_pos, max_new_tokens, stop, **more):
        wanted = [[*rows[int((row >= 0).sum())], *stop, 0, 0, 0][:5] for row in memory_pos]
        for column in zip(*wanted, strict=True):
            yield SimpleNamespace(ids=torch.tensor(column))

    monkeypatch.setattr("minitf.generation.generate.generate", write)
    found = measure(model, Seq2Seq(), data, Split(data, "val", None))
    assert found["rows"] == 5
    # 0 + 0 + 1 + 0 + 0 edits; the nearest references have 1, 3, 3, 1 and 3 tokens
    assert found["scores"]["token_error_rate"] == pytest.approx(1 / 11)
    assert found["scores"]["sequence_error_rate"] == pytest.approx(1 / 5)
    assert "bleu" not in found["scores"]


def test_running_text_has_bleu_over_the_split(words):
    pytest.importorskip("sacrebleu")
    data, model = words
    data.answer_text = lambda ids: " ".join(data.answer_symbols(ids))
    found = measure(model, Seq2Seq(), data, Split(data, "val", None))
    assert 0 <= found["scores"]["bleu"] <= 100
    assert "tok:" in found["notes"]["bleu"]


def test_what_is_missing_is_told_before_anything_is_written(words, monkeypatch):
    data, model = words
    data.answer_text = lambda ids: ""
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.setattr("minitf.commands.score.measure.translated", lambda *a: pytest.fail("it was written first"))
    with pytest.raises(DataError, match="sacrebleu"):
        measure(model, Seq2Seq(), data, Split(data, "val", None))


def test_until():
    assert until([3, 4, 0, 5], 0) == [3, 4]
    assert until([3, 4], 0) == [3, 4]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [(["split=test"], "val or train"), (["n=0"], "at least 1"), (["split=train"], "no end"), (["checkpoint=9"], "9")],
)
def test_what_there_is_not_is_refused(runs, overrides, message):
    with pytest.raises(ConfigError, match=message):
        evaluate(compose("evaluate", overrides), {"run": str(runs["tag"])})


def test_other_data_and_strange_parts_are_refused(runs, tmp_path):
    folder = shutil.copytree(runs["tag"], tmp_path / "run")
    (folder / "scores.json").unlink(missing_ok=True)
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    record["data"]["sha256"] = "0"
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError, match="not the one that this run began with"):
        scored(folder)
    assert not (folder / "scores.json").exists()
    path = next((folder / "checkpoints").glob("best-*.ckpt"))
    state = torch.load(path, weights_only=True)
    state["config"]["data"]["_target_"] = "os.system"
    torch.save(state, path)
    with pytest.raises(ConfigError, match=r"os\.system"):
        scored(folder)


@pytest.mark.slow
def test_the_command(runs, tmp_path):
    done = command("evaluate", f"run={runs['seq2seq']}", "n=4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sequence error rate" in done.stdout
    assert math.isfinite(json.loads((runs["seq2seq"] / "scores.json").read_text())["scores"]["loss"])
    for wrong, said in ((["run=nowhere"], "there is no run folder"), ([], "run=FOLDER")):
        done = command("evaluate", *wrong, cwd=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
