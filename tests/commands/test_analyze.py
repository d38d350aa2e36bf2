"""`analyze` on small runs of each kind: names, effects, files, and what it refuses."""

import json
import re

import pytest
import torch
from runs import TOY, command, train_here, write_corpus

from minitf.analysis.by_role import answered
from minitf.analysis.heads.names import LEAST_ASKED
from minitf.commands.analyze import analyze
from minitf.config import compose
from minitf.errors import ConfigError
from minitf.runs import load_run
from minitf.tap import Tap, zero_heads

SHORT = ["trainer.max_steps=4", "trainer.val_every=2", "trainer.log_every=2", "schedule.warmup_steps=1"]
SHORT += ["data.n_val=40", "data.batch_size=16", "model.d_model=32", "trainer.precision=32-true"]
KINDS = {
    "answer": ["data=repeat", "task=answer", "model.n_layers=2", "callbacks=health", "callbacks.health_every=2"],
    "seq2seq": ["data=reverse", "model=encdec_tiny", "task=seq2seq", "callbacks.snapshot_every=2"],
    "pointer": ["data=sort_pointer", "model=pointer_tiny", "task=pointer"],
    "classify": ["data=majority", "model=bert_tiny", "task=classify", "model/head=classify"],
    "readouts": ["data=look_back", "model=bert_tiny", "task=tag", "model/head=tag", "model.n_layers=1"],
}
FEW = ["n=24", "untrained=1", "shuffles=3", "draws=2", "examples=2", "max_tokens=12", "figures=false"]


def looked(folder, *overrides, typed=(), **raw):
    """What heads.json holds, and the table."""
    text = analyze(compose("analyze", [*FEW, *overrides]), {"run": str(folder), **raw}, list(typed), "minitf-analyze")
    return json.loads((folder / "analysis" / "heads.json").read_text(encoding="utf-8")), text


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder of a run of each kind, which is trained when it is first asked for."""
    base = tmp_path_factory.mktemp("analyzed")

    class Runs(dict):
        def __missing__(self, kind):
            self[kind] = train_here(base / kind, [*KINDS[kind], *SHORT])
            return self[kind]

    return Runs()


SLOW = ("seq2seq", "pointer", "classify", "readouts")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in KINDS])
def test_every_kind_of_run_gets_its_tables_its_numbers_and_its_page(runs, kind):
    found, text = looked(runs[kind], "bertviz=true", "figures=true")
    model = load_run(runs[kind])[0]
    n_heads = sum(int(head.n_heads) for name, head in model.named_modules() if name.endswith("attention"))
    assert len(found["heads"]) == len(found["effects"]) == n_heads
    assert all(head["place"] in text for head in found["heads"])
    assert set(found["full"]) == {"all", *next(iter(found["effects"].values()))["lost"]}
    page = (runs[kind] / "analysis" / "heads.html").read_text(encoding="utf-8")
    assert len(page) < 1_000_000
    assert "minitf-analyze" in page
    assert (runs[kind] / "analysis" / "effects.png").stat().st_size > 5000
    maps = torch.load(runs[kind] / "analysis" / "bertviz.pt", weights_only=True)
    assert len(maps) == 2
    kinds = (
        {"encoder_attention", "decoder_attention", "cross_attention"}
        if kind in ("seq2seq", "pointer")
        else {"attention"}
    )
    for example in maps.values():
        layers = [layer for name in kinds for layer in example[name]]
        assert all(layer.shape[0] == 1 and max(layer.shape[2:]) <= 12 for layer in layers)
        assert sum(layer.shape[1] for layer in layers) == n_heads


def test_an_effect_is_what_is_lost_when_that_head_alone_is_zero(runs):
    found, _ = looked(runs["answer"], "n=null")
    model = load_run(runs["answer"])[0]
    cfg = load_run(runs["answer"])[2]
    from minitf.config import build_data

    data = build_data(cfg).prepare(lambda line: None)
    data.plan(n_steps=1)
    batches = list(data.val_batches())
    full = answered(model, batches)["repeat"]
    with Tap(model, edit={"layers.1.attention.heads": zero_heads([2])}):
        without = answered(model, batches)["repeat"]
    assert full.n == sum(int((batch["targets"] >= 0).sum()) for batch in batches) > LEAST_ASKED
    assert found["effects"]["1.2"]["lost"]["repeat"] == pytest.approx(full.accuracy - without.accuracy)
    controls = [control["heads"] for control in found["effects"]["1.2"]["controls"]]
    assert controls == [["1.0"], ["1.1"], ["1.3"]]


def test_without_untrained_models_nothing_is_named(runs):
    found, text = looked(runs["readouts"], "untrained=0")
    assert not any(head["names"] for head in found["heads"])
    assert "No head has a name: that takes untrained models to compare with" in text
    lost = [value for effect in found["effects"].values() for value in effect["lost"].values()]
    assert 0.0 in lost
    assert "-0.0" not in map(str, lost)


def test_heads_can_be_chosen(runs, monkeypatch):
    found, text = looked(runs["answer"], heads="1.0, 0")
    assert set(found["effects"]) == {"0.0", "0.1", "0.2", "0.3", "1.0"}
    assert "1.1" not in re.findall(r"^  (\d\.\d)", text, re.MULTILINE)
    controls = [control["heads"] for control in found["effects"]["1.0"]["controls"]]
    assert controls == [["1.1"], ["1.2"], ["1.3"]]  # a head that was asked for alone has its controls too
    found, _ = looked(runs["seq2seq"], heads="cross")
    assert all(place.startswith("cross ") for place in found["effects"])
    monkeypatch.setattr("minitf.commands.analyze.prepare", lambda *_: pytest.fail("data is prepared for nothing"))
    with pytest.raises(ConfigError, match=r"there is no '7.1'; there are 0.0 to 0.3, 1.0 to 1.3"):
        looked(runs["answer"], heads="7.1")


def test_the_page_shows_training_and_health(runs):
    looked(runs["seq2seq"])
    page = (runs["seq2seq"] / "analysis" / "heads.html").read_text(encoding="utf-8")
    steps = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["snapshots"]
    assert [snapshot["step"] for snapshot in steps] == [2, 4]
    assert 'figure data-role="reverse"' in page  # the role of cross-attention, along the training
    looked(runs["answer"])
    assert "relative_residual" in (runs["answer"] / "analysis" / "heads.html").read_text(encoding="utf-8")


def test_other_data_and_other_settings_of_it(runs):
    found, _ = looked(runs["answer"], typed=["data.seq_len=16", "data.seed=5"])
    assert found["data_settings"] == ["data.seq_len=16", "data.seed=5"]
    found, _ = looked(runs["answer"], typed=["data=bigram_backcopy", "data.seq_len=20", "data.task.n_symbols=20"])
    assert "back" in found["data"].lower()
    with pytest.raises(ConfigError, match="vocab_size"):
        looked(runs["answer"], typed=["data=repeat", "data.task.n_symbols=200", "data.task.most=11"])
    with pytest.raises(ConfigError, match="no setting of the run's data"):
        looked(runs["answer"], typed=["data.task.nsymbols=20"])


@pytest.mark.slow
def test_a_model_of_text_reads_repeated_symbols(tmp_path):
    texts = write_corpus(tmp_path / "texts", n_files=20)
    run = train_here(
        tmp_path / "run", [*TOY, f"data.source.path={texts}", "trainer.max_steps=5", "trainer.val_every=5"]
    )
    found, text = looked(run)
    assert (found["measure"], found["takes"]) == ("loss", "text")
    assert "loss in nats" in text
    found, _ = looked(run, typed=["data=repeat", "data.task.n_symbols=200", "data.n_val=24"])
    assert (found["measure"], found["takes"]) == ("accuracy", "answers")
    assert set(found["full"]) == {"all", "repeat"}
    with pytest.raises(ConfigError, match=r"has vocab_size 401, the run knows 300"):
        looked(run, typed=["data=repeat", "data.task.n_symbols=400", "data.n_val=24"])
    with pytest.raises(ConfigError, match=r"rows of 64 tokens are longer .* data\.seq_len=32"):
        looked(run, typed=["data=repeat", "data.seq_len=64", "data.n_val=24"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["n=0"], "n (0) must be"),
        (["ablate=one"], "ablate ('one') must be one of zero, mean, resample"),
        (["shuffles=0"], "shuffles (0) must be"),
        (["lang=de"], "lang ('de') must be en or zh"),
    ],
)
def test_wrong_settings_are_told_at_once(runs, given, told):
    with pytest.raises(ConfigError) as error:
        looked(runs["answer"], *given)
    assert told in str(error.value)


@pytest.mark.slow
def test_as_a_command_from_another_folder(runs, tmp_path):
    done = command(
        "analyze", f"run={runs['answer']}", *FEW, "data.seq_len=16", f"out={tmp_path / 'here'}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Each head alone" in done.stdout
    assert (tmp_path / "here" / "heads.html").is_file()
    asked = (tmp_path / "here" / "heads.html").read_text(encoding="utf-8")
    assert f"run={runs['answer']}" in asked


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_told_before_the_work(runs, monkeypatch):
    monkeypatch.setattr("minitf.commands.analyze.look", lambda *_: pytest.fail("it has begun"))
    for out in ("/dev/null", "/dev/null/deep/er"):
        with pytest.raises(NotADirectoryError, match="/dev/null"):
            analyze(compose("analyze", FEW), {"run": str(runs["answer"]), "out": out}, [], "")


def test_without_a_run_it_says_what_to_give(tmp_path):
    done = command("analyze", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: give the run")


def test_resampling_needs_another_row_in_each_batch(runs):
    with pytest.raises(ConfigError, match=r"of these 17 rows one is alone in its batch: n=16, or ablate=mean"):
        looked(runs["answer"], "n=17", "ablate=resample")  # batches of 16


def test_a_run_that_is_called_by_a_dot_has_its_name_on_the_page(runs, monkeypatch):
    folder = runs["answer"]
    monkeypatch.chdir(folder)
    analyze(compose("analyze", [*FEW, "untrained=0", "n=4"]), {"run": ".", "heads": "1.0"}, [], "")
    page = (folder / "analysis" / "heads.html").read_text(encoding="utf-8")
    assert f"<title>Heads of {folder.name}</title>" in page


def test_data_of_another_kind_is_refused_with_a_way_out(runs):
    with pytest.raises(ConfigError, match=r"src_vocab_size 17, and the run's data had none, .* data of the same kind"):
        looked(runs["answer"], typed=["data=reverse", "data.n_val=24"])
