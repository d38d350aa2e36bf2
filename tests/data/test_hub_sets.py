"""The data sets of the hub that have a name of their own, on stand-ins of the same schema at a hub on this machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import hub_sets
import pytest
import torch
from hub_server import HubServer

from minitf.data.articles import articles
from minitf.data.hub import Hub
from minitf.data.hub_access import Found
from minitf.data.items import Item
from minitf.data.items import hub as hub_items
from minitf.data.items.hub import HubLabels, HubPairs
from minitf.data.items.text import TextItemData
from minitf.data.tokenizer import BPETokenizer, CharTokenizer
from minitf.errors import ConfigError, DataError
from minitf.runs import load_run

SCRIPTS = Path(__file__).parents[2] / "scripts"
SMALL = ["trainer.max_steps=2", "trainer.val_every=2", "trainer.log_every=1", "schedule.warmup_steps=1"]
SMALL += ["model.d_model=32", "data.batch_size=4", "data.seq_len=64", "data.tokenizer.vocab_size=300"]
READ = """
import json, sys
from omegaconf import OmegaConf
from minitf.config import build, config_dir
for name in json.loads(sys.argv[1]):
    files = [config_dir() / f"data/{n}.yaml" for n in ("hub", name)][name in ("imdb", "multi30k") :]
    source = build(OmegaConf.merge(*map(OmegaConf.load, files)).source)
    if hasattr(source, "documents"):
        found = source.documents()
        print(json.dumps({"record": found.record, "train": found.train, "val": found.val}))
    else:
        found = source.split(lambda line: None)
        rows = {part: [[i.source, i.answer] for i in getattr(found, part)] for part in ("train", "val")}
        print(json.dumps({"record": found.record, "baselines": found.baselines, **rows}))
"""


class Place:
    """A machine of its own: where the hub is, and what it has kept."""

    def __init__(self, folder, endpoint):
        self.folder, self.endpoint = folder, endpoint

    def run(self, *command):
        own = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.folder / "hf")}
        own |= {"MINITF_CACHE": str(self.folder / "cache"), "PYTHONPATH": str(SCRIPTS.parent)}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
        done = subprocess.run(
            [sys.executable, *command], env=kept | own, cwd=self.folder, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def unplugged():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.slow
def test_each_set_is_read_as_its_card_says(tmp_path):
    with HubServer(hub_sets.repos()) as hub:
        names = ["tinystories", "wikitext2", "imdb", "multi30k"]
        said = [json.loads(line) for line in Place(tmp_path, hub.url).run("-c", READ, json.dumps(names)).splitlines()]
        commits = [hub.commit(name) for name in hub.repos]
        read = [r for r in hub.requests if "/resolve/" in r]
    assert [one["record"]["revision"] for one in said] == commits
    assert not [request for request in read if "unsupervised" in request or "wikitext-2-v1/" in request]
    stories, wiki, reviews, pairs = said
    assert (stories["train"], stories["val"]) == (hub_sets.stories(0, 400), hub_sets.stories(1000, 100))  # no .txt
    assert stories["record"]["licence"] == "cdla-sharing-1.0"
    assert (len(wiki["train"]), len(wiki["val"])) == (12, 2)
    assert [text.split("\n")[0] for text in wiki["val"]] == [" = Owls = ", " = E = mc ² = "]
    assert wiki["record"]["licence"] == "cc-by-sa-3.0, gfdl"
    assert [len(reviews[part]) for part in ("train", "val")] == [119, 120]
    assert reviews["record"]["train_rows_also_in_validation_left_out"] == 1
    assert reviews["record"]["split"] == "the data set's own: train and test"
    assert {label for _, (label,) in reviews["train"]} == {"neg", "pos"}
    assert all((label == "pos") == ("loved" in text or "warm" in text) for text, (label,) in reviews["val"])
    assert reviews["baselines"]["most frequent class"] == 0.5
    assert reviews["baselines"]["naive bayes, words"] > 0.9
    assert pairs["record"]["split"] == "the data set's own: train and validation"
    assert [len(pairs[part]) for part in ("train", "val")] == [300, 40]
    assert pairs["val"] == [list(json.loads(line).values()) for line in hub_sets.pairs(1, 40)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tinystories", "wikitext2", "imdb", "multi30k"])
def test_each_set_trains_by_its_name_and_again_without_a_network(name, tmp_path):
    train = [str(SCRIPTS / "train.py"), f"data={name}", *SMALL, "logger=csv"]
    with HubServer(hub_sets.repos()) as hub:
        Place(tmp_path, hub.url).run(*train, "hydra.run.dir=first")
    place = Place(tmp_path, unplugged())
    place.run(*train, "hydra.run.dir=again")
    first, again = (json.loads((tmp_path / run / "metrics.json").read_text()) for run in ("first", "again"))
    assert first["final"]["val/loss"] == again["final"]["val/loss"]
    records = [json.loads((tmp_path / run / "record.json").read_text()) for run in ("first", "again")]
    assert records[0]["data"] == records[1]["data"]
    if name in ("imdb", "multi30k"):
        table = place.run(str(SCRIPTS / "evaluate.py"), "run=first")
        scores = json.loads((tmp_path / "first" / "scores.json").read_text())
        assert ("macro_f1" if name == "imdb" else "bleu") in scores["scores"]
        assert all(baseline in table for baseline in scores["baselines"])
    if name == "multi30k":
        said = place.run(
            str(SCRIPTS / "generate.py"), "run=first", "prompt=a dog runs", "max_new_tokens=6", "sampler.temperature=0"
        )
        assert f"a dog runs -> {translated(tmp_path / 'first', 'a dog runs', 6)}" in said
    if name == "imdb":
        shown = place.run(str(SCRIPTS / "demo.py"), "demo=data", "data=imdb", "data.seq_len=64")
        assert "Name the class of a text." in shown
        assert "  label  neg" in shown


@torch.no_grad()
def translated(run, text, n):
    """The likeliest token n times, without a cache, until the end."""
    model, tokenizer, _ = load_run(run)
    memory = model.encode(torch.tensor([tokenizer.encode(text)]), None)
    written = [tokenizer.bos_id]
    for _ in range(n):
        logits = model.head(model.hidden(torch.tensor([written]), memory=memory))
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == tokenizer.bos_id:
            return tokenizer.decode(written[1:-1])
    return tokenizer.decode(written[1:])


def test_lines_are_joined_up_to_the_next_heading():
    lines = ["", " = First = \n", "", " Text . \n", " = = Part = = \n", "", " = 5 = \n", " More . \n"]
    lines += ["", " = E = mc ² = \n", "", " Last . \n"]
    # a line of the text that looks like a heading has neighbours
    first = " = First = \n\n Text . \n = = Part = = \n\n = 5 = \n More . "
    assert list(articles(lines)) == [first, " = E = mc ² = \n\n Last . "]
    assert list(articles(["", "", " \n"])) == []
    assert list(articles([" No heading . \n"])) == [" No heading . "]


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Let the hub hold these splits."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))

    def serve(**splits):
        found = Found("me/set", "c0ffee", "cc0-1.0", splits)
        monkeypatch.setattr("minitf.data.hub_access.why_unreachable", lambda: None)
        monkeypatch.setattr("minitf.data.hub_access.look_up", lambda dataset, revision: found)
        monkeypatch.setattr("minitf.data.hub_access.stream", lambda wanted, found: found)

    return serve


def labelled(n, label, start=0):
    return [{"text": f"text {label} {i}", "label": label} for i in range(start, start + n)]


def made(source, tokenizer=None, seq_len=16):
    return TextItemData(source, tokenizer or BPETokenizer(280), seq_len, 4, 0).prepare(lambda line: None)


def test_only_the_articles_that_are_wanted_are_read(served):
    def lines():
        for i in range(3):
            yield from ({"text": text} for text in ("", f" = {i} = \n", "", f" body {i} \n"))
        raise AssertionError("read on")

    served(train=lines(), validation=[{"text": " = v = \n"}])
    documents = Hub("me/set", documents="articles", max_documents=2).documents()
    assert documents.train == [" = 0 = \n\n body 0 ", " = 1 = \n\n body 1 "]
    assert documents.val == [" = v = "]
    assert documents.record["documents_are"] == "articles"


def test_of_rows_sorted_by_class_a_hash_takes_as_many_of_each(served):
    served(train=[*labelled(300, "bad"), *labelled(300, "good")], test=labelled(9, "good", 900))
    few = HubLabels("me/set", max_train=100, max_val=4).split(lambda line: None)
    kinds = [item.answer[0] for item in few.train]
    assert len(kinds) == 100
    assert 35 <= kinds.count("bad") <= 65
    assert kinds == sorted(kinds), "in the order of the data set"
    assert len(few.val) == 4


def test_rows_without_a_text_or_a_class_are_left_out_and_what_is_no_class_is_refused(served):
    rows = [*labelled(3, 0), *labelled(3, 1), {"text": "", "label": 1}, {"text": "unlabelled", "label": None}]
    served(train=rows, test=labelled(2, 1, 50))
    data = made(HubLabels("me/set"))
    assert (data.record["empty_rows"], data.record["train_rows"]) == (2, 6)
    assert data.answer_symbols([0, 1]) == ["0", "1"]
    served(train=[{"text": "a", "label": [1]}], test=labelled(2, 1))
    with pytest.raises(DataError, match=r"'label' holds \[1\], which is no label.*data\.source\.label=NAME"):
        HubLabels("me/set", max_val=1).depends_on()
    served(train=labelled(2, 0))
    with pytest.raises(DataError, match="no split to measure on, only train"):
        HubLabels("me/set", max_val=2).split(lambda line: None)


class WithFeatures(list):
    """Rows whose data set says what the numbers of its classes mean."""

    features: ClassVar = {"label": SimpleNamespace(names=["neg", "pos"])}


def test_classes_have_the_names_of_the_data_set_and_minus_one_is_none(served):
    rows = [*labelled(2, 0), *labelled(2, 1), {"text": "not labelled", "label": -1}]
    served(train=WithFeatures(rows), test=WithFeatures(labelled(2, 1, 50)))
    found = HubLabels("me/set").split(lambda line: None)
    assert [item.answer for item in found.train] == [["neg"], ["neg"], ["pos"], ["pos"]]
    assert found.record["empty_rows"] == 1


def test_a_hub_that_cannot_be_reached_names_what_works_without(served, monkeypatch):
    monkeypatch.setattr("minitf.data.hub_access.why_unreachable", lambda: "no network")
    for make, message in [(HubLabels, "data=imdb .*data=majority"), (HubPairs, "data=multi30k .*data=reverse")]:
        with pytest.raises(DataError, match=message):
            made(make("nobody/nothing"))


def test_long_texts_are_cut_and_counted_and_every_text_begins_with_bos(served):
    long = {"text": "x" * 40, "label": 1}
    served(train=[*labelled(5, 0), long], test=[long | {"text": "y" * 15}, long | {"text": "z" * 16}])
    data = made(HubLabels("me/set"), CharTokenizerOfAll())
    assert (data.record["train_rows_cut"], data.record["val_rows_cut"]) == (1, 1)
    (batch,) = data.val_batches()
    bos = data.tokenizer.bos_id
    assert batch["ids"].shape == (2, 16)
    assert batch["ids"][:, 0].tolist() == [bos, bos]
    assert [data.tokenizer.decode(row) for row in batch["ids"].tolist()] == ["y" * 15, "z" * 15]


class CharTokenizerOfAll(CharTokenizer):
    """Knows all letters, wherever they stand."""

    def train(self, texts):
        return super().train([*texts, "abcdefghijklmnopqrstuvwxyz"])


def test_the_tokenizer_sees_the_training_split_alone(served):
    served(train=labelled(5, 0), test=[{"text": "q", "label": 0}])
    with pytest.raises(DataError, match=r"'q' .*not among the"):
        made(HubLabels("me/set"), CharTokenizer())


def sentences(*texts):
    return [{"en": en, "de": de} for en, de in texts]


def test_pairs_have_one_tokenizer_and_are_the_texts_again(served):
    served(train=sentences(("a b", "ä b"), ("a", "ä" * 30)), validation=sentences(("b a", "b ä")))
    data = made(HubPairs("me/set"), CharTokenizer())
    assert (data.record["train_pairs_left_out"], data.record["train_rows"]) == (1, 1)
    (batch,) = data.val_batches()
    end = data.tokenizer.bos_id
    assert batch["ids"][0, 0] == batch["targets"][0, -1] == end == data.facts["vocab_size"] - 1
    assert data.tokenizer.decode(batch["src"][0].tolist()) == "b a"
    assert [data.answer_text(row) for (row,) in data.references()] == ["b ä"]
    assert data.answer_symbols([end]) == ["[end]"]
    turned = made(HubPairs("me/set", read="de", write="en"), CharTokenizer())
    assert turned.answer_text(turned.references()[0][0]) == "b a"
    with pytest.raises(DataError, match=r"every pair .*the shortest has 4, the longest 31"):
        made(HubPairs("me/set"), CharTokenizer(), seq_len=3)
    served(train=sentences(("a", "b"), ("ab", "ba")), validation=sentences(("ab", "abba")))
    with pytest.raises(DataError, match=r"longest row of me/set has 5 tokens.*data\.seq_len=5"):
        made(HubPairs("me/set", max_val=1), CharTokenizer(), seq_len=3)


def test_no_source_baseline_counts_what_follows(served):
    # behind bos x, behind x y twice and the end once, behind y the end
    served(train=sentences(("1", "xy"), ("2", "xy"), ("3", "x")), validation=sentences(("4", "xy"), ("5", "xx")))
    stated = made(HubPairs("me/set"), TrainedOn("xy12345")).baselines()
    assert stated == {"no source, from the token before": pytest.approx(4 / 6)}


class TrainedOn(CharTokenizer):
    def __init__(self, characters):
        super().__init__()
        self.characters = characters

    def train(self, texts):
        return super().train(self.characters)


def test_naive_bayes_in_numbers():
    train = [Item("a a b", ["x"]), Item("b", ["y"])]
    val = [Item("a", ["x"]), Item("b", ["y"]), Item("b c", ["x"])]
    assert hub_items.naive_bayes(train, val, lambda item: item.source.split()) == pytest.approx(2 / 3)
    assert hub_items.most_frequent_class([*train, train[1]], val) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HubLabels("me/set", text=3), r"data\.source\.text must be text, got 3"),
        (lambda: HubPairs("me/set", write=None), r"data\.source\.write must be text, got None"),
        (lambda: HubPairs("no name"), "no name on the hub"),
        (lambda: HubLabels("me/set", max_train=0), r"data\.source\.max_train \(0\)"),
        (lambda: Hub("me/set", documents="lines"), "must be rows or articles"),
    ],
)
def test_what_cannot_be_asked_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
