"""What a user is likely to mistype: one message that helps, exit code 2, nothing left behind."""

import contextlib
import functools
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import parts
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from runs import TOY, command, write_corpus

from minitf.config import compose
from minitf.errors import ConfigError
from minitf.typed import check_typed

EXPERIMENTS = {
    "typo": "trainer:\n  max_step: 3\n",
    "kind": "trainer:\n  max_steps: two\n",
    "gone": "optim: null\n",
    "range": "optim:\n  betas: [0.9]\n",
    "part": "my_own:\n  x: 1\n",
}
MINE = "--config-dir mine"

# id: (command line, what the message must say)
TRAIN = {
    # groups
    "group": ("mdel=x", r"'mdel' is no key or group of 'train'; nearest: model"),
    "group-plus": ("+mdel=x", r"'mdel' is no key of 'train'; nearest: model"),
    "group-plusplus": ("++mdel=x", r"'mdel' is no key of 'train'; nearest: model"),
    "group-tilde": ("~mdel", r"'mdel' is no key or group"),
    "group-removed": ("~model", r"model needs one option: .*model=gpt_tiny"),
    "group-list": ("model=[gpt_tiny]", r"model needs one option"),
    "group-dict": ("trainer={zzz:1}", r"trainer needs one option: .*trainer=default"),
    "group-plus-dict": ("+trainer={zzz:1}", r"trainer needs one option: .*; got \+trainer=\{zzz:1\}"),
    "group-as-value": ("model.attention=mqa", r"model/attention=mqa chooses an option"),
    "value-as-group": ("model/n_layers=3", r"nearest: model\.n_layers"),
    "package": ("+model/attention@foo=gqa", r"puts an option where nothing reads it"),
    "package-unused": ("model/init@model.init.base=gpt2", r"cannot be chosen: nothing that is in use has a part at"),
    "group-below": ("model/position/scaling=yarn", r"no group of 'train' as it is: model/position=rope brings it"),
    "group-of-preset": (
        "model=gpt2_tiny model/attention=mla",
        r"model=gpt2_tiny chooses model/attention/projection, for which another choice of yours has no place",
    ),
    "recipe-plus": ("model.recipes.a.mask=1", r"is new: what is new there is added with a plus, such as \+model"),
    "option-twice": ("+model=llama_tiny", r"model has an option already: model=\.\.\. without \+"),
    # options
    "option": (
        "model=gpt_tny",
        r"model=gpt_tny: there is no such option; model can be .*gpt_tiny, gru_none",
    ),
    "option-nested": ("model/attention=mhaa", r"model/attention can be gqa, mha, mla, mqa"),
    "option-plus": ("+model/attention/score=foo", r"model/attention/score can be additive, .*scaled_dot"),
    "option-plusplus": ("++model=gpt_tny", r"force-add of config groups is not supported"),
    "option-experiment": ("+experiment=smok", r"experiment can be dates, induction, roles, smoke"),
    # keys
    "key": ("model.n_layer=3", r"'model\.n_layer' is no key .* nearest: model\.n_layers"),
    "key-plus": ("+model.n_layer=3", r"'model\.n_layer' is no key .* nearest: model\.n_layers"),
    "key-plusplus": ("++model.attention.foo.bar=3", r"'model\.attention\.foo' is no key"),
    "key-tilde": ("~model.n_layers", r"~model\.n_layers takes out what is needed"),
    "key-tilde-null": ("~model.attention.fast", r"or give model\.attention\.fast=null"),
    "key-below-leaf": ("+model.d_model.x=3", r"model\.d_model is one value, not a part with keys such as x"),
    "key-new": ("+foo.bar=3", r"'foo' is no key of 'train'"),
    "key-inside": ("model.ffn={a:1}", r"'model\.ffn\.a' is no key"),
    "key-hydra": ("hydra.run.dirr=3", r"'hydra\.run\.dirr' is no key of Hydra's; nearest: hydra\.run\.dir"),
    "part": ("model.attention.fast=foo", r"a part with keys of its own, not a value such as 'foo'"),
    # targets
    "target": ("model._target_=foo.bar", r"model\._target_=foo\.bar names nothing that can be imported"),
    "target-inner": (
        "model.ffn._target_=minitf.blocks.ffn.Foo",
        r"model\.ffn\._target_=minitf\.blocks\.ffn\.Foo names",
    ),
    "target-plus": ("++optim._target_=minitf.nothing.x", r"optim\._target_=minitf\.nothing\.x names nothing"),
    "target-tilde": ("~model._target_", r"~model\._target_ takes out what is needed"),
    "target-other": ("schedule._target_=minitf.training.optim.adamw", r"adamw: .*'warmup_steps'"),
    # kinds
    "word": ("model.n_layers=two", r"model\.n_layers must be a whole number such as 4, got 'two'"),
    "empty": ("model.n_layers=", r"model\.n_layers must be a whole number such as 4, got ''"),
    "real": ("model.n_layers=4.0", r"model\.n_layers must be a whole number such as 4, got 4\.0"),
    "exponent": ("trainer.max_steps=1e3", r"trainer\.max_steps must be a whole number such as 1300, got 1000\.0"),
    "nan-count": ("model.n_layers=nan", r"a whole number .* got nan"),
    "bool": ("model.tie_embeddings=1", r"model\.tie_embeddings must be true or false, got 1"),
    "bool-number": ("model.d_model=true", r"model\.d_model must be a whole number such as 128, got true"),
    "list-for-number": ("optim.lr=[1,2]", r"optim\.lr must be a number such as .* got \[1, 2\]"),
    "list-for-text": ("trainer.precision=[a]", r"trainer\.precision must be a single value such as 'auto'"),
    "dict-for-number": ("model.n_layers={a:1}", r"model\.n_layers"),
    "number-for-list": ("optim.betas=0.9", r"optim\.betas must be a list such as \[0\.9, 0\.95\], got 0\.9"),
    "betas-short": ("optim.betas=[0.9]", r"optim\.betas \(\[0\.9\]\) must be two numbers"),
    "betas-long": ("optim.betas=[0.9,0.9,0.9]", r"optim\.betas .* must be two numbers"),
    "betas-words": ("optim.betas=[a,b]", r"optim\.betas must be a list of numbers"),
    "betas-range": ("optim.betas=[2,3]", r"optim\.betas \(\[2, 3\]\) must be two numbers from 0"),
    "null-source": ("data.source=null", r"data\.source cannot be null"),
    "null-number": ("trainer.max_steps=null", r"trainer\.max_steps cannot be null; the default is 1300"),
    "null-list": ("optim.betas=null", r"optim\.betas cannot be null; the default is \[0\.9, 0\.95\]"),
    "missing": ("data=text_files", r"give data\.source\.path="),
    # sizes that do not fit
    "heads": ("model.attention.n_heads=3", r"d_model \(128\) must be a multiple of n_heads \(3\), or set d_head"),
    "kv-heads": ("model/attention=gqa model.attention.n_kv_heads=3", r"n_heads \(4\) must be a multiple of n_kv_heads"),
    "rope": ("model/position=rope model.attention.d_head=3", r"rope needs an even d_head, got 3"),
    "mask": ("model/mask=full", r"model/mask=causal"),
    "accumulate": ("trainer.accumulate=3", r"trainer\.accumulate"),
    "warmup": (
        "schedule.warmup_steps=50 trainer.max_steps=20",
        r"schedule\.warmup_steps \(50\) is longer than the run",
    ),
    "memory-layers": ("model.n_layers=100000000", r"parameters, which take .* GB; this machine has"),
    "memory-width": ("model.d_model=10000000", r"parameters, which take .* GB; this machine has"),
    "memory-table": ("data.seq_len=1000000000", r"position table for data\.seq_len=1000000000 has"),
    # facts of the data
    "vocabulary-model": ("model.vocab_size=7", r"model\.vocab_size cannot be set, it is counted"),
    "vocabulary-data": ("data.vocab_size=5", r"data\.tokenizer\.vocab_size chooses that of bpe"),
    "vocabulary-plus": ("++data.vocab_size=5", r"data\.vocab_size cannot be set"),
    # ranges
    "seed-negative": ("seed=-1", r"seed \(-1\) must be a whole number from 0 to 4294967295"),
    "seed-huge": ("seed=4294967296", r"seed \(4294967296\) must be"),
    "seed-real": ("seed=1.5", r"^error: seed must be a whole number"),
    "d-model": ("model.d_model=0", r"d_model must be a whole number of at least 1, got 0"),
    "layers": ("model.n_layers=-2", r"n_layers must be a whole number of at least 1, got -2"),
    "heads-zero": ("model.attention.n_heads=0", r"n_heads must be a whole number of at least 1, got 0"),
    "head-width": ("model.attention.d_head=1.5", r"d_head must be a whole number of at least 1, got 1\.5"),
    "ffn-width": ("model.ffn.d_ff=1e3", r"d_ff must be a whole number of at least 1, got 1000\.0"),
    "dropout": ("model.dropout=1.5", r"dropout is a probability"),
    "dropout-nan": ("model.dropout=nan", r"dropout is a probability .* got nan"),
    "attention-dropout": ("model.attention.dropout=-0.1", r"attention dropout is a probability"),
    "window": ("model/mask=sliding_window model.mask.window=0", r"window must be a whole number of at least 1"),
    "sinks": ("model/mask=sliding_window model.mask.n_sink=-1", r"n_sink must be a whole number, 0 or more"),
    "rope-base": ("model/position=rope model.position.base=inf", r"rope base must be a finite number above 1, got inf"),
    "norm-eps": ("model.norm.eps=-1", r"norm eps must be a finite number above 0, got -1: 1e-5 is usual"),
    "norm-eps-rms": ("model/norm=rms model.norm.eps=nan", r"norm eps must be a finite number above 0, got nan"),
    "residual": ("model.layer.ffn_residual=nan", r"ffn_residual must be a finite number, got nan"),
    "init": ("model.init.std=0", r"init std must be a finite number above 0, got 0"),
    "seq-len": ("data.seq_len=0", r"data\.seq_len \(0\) must be a whole number of at least 1"),
    "batch": ("data.batch_size=-3", r"batch_size \(-3\) must be a whole number of at least 1"),
    "val-fraction": ("data.source.val_fraction=2", r"val_fraction \(2\) must lie between 0 and 1"),
    "val-fraction-nan": ("data.source.val_fraction=nan", r"val_fraction \(nan\) must lie between 0 and 1"),
    "bpe": ("data.tokenizer.vocab_size=100", r"data\.tokenizer\.vocab_size \(100\) .* from 257"),
    "bpe-huge": ("data.tokenizer.vocab_size=1000000000000", r"data\.tokenizer\.vocab_size .* to 1000000"),
    "lr": ("optim.lr=-1", r"optim\.lr \(-1\) must be a finite number above 0"),
    "lr-nan": ("optim.lr=nan", r"optim\.lr \(nan\) must be a finite number above 0"),
    "lr-inf": ("optim=adamw optim.lr=inf", r"optim\.lr \(inf\) must be a finite number above 0"),
    "lr-adamw": ("optim.adamw_lr=0", r"optim\.adamw_lr \(0\) must be a finite number above 0"),
    "decay": ("optim.weight_decay=-1", r"optim\.weight_decay \(-1\) must be a finite number, 0 or more"),
    "lr-float32": ("optim.lr=1e300", r"optim\.lr \(1e\+300\) must be a finite number above 0, up to 1e\+30"),
    "steps-huge": (f"trainer.max_steps={10**30}", r"trainer\.max_steps \(10+\) is more than"),
    "d-ff-huge": (f"model.ffn.d_ff={10**30}", r"d_ff \(10+\) is more than any tensor can have"),
    "eps": ("optim.eps=0", r"optim\.eps \(0\) must be a finite number above 0"),
    "momentum": ("optim.momentum=1", r"optim\.momentum \(1\) must lie from 0"),
    "ns-steps": ("optim.ns_steps=200", r"optim\.ns_steps \(200\) must be a whole number from 1 to 99"),
    "warmup-negative": ("schedule.warmup_steps=-1", r"schedule\.warmup_steps \(-1\) must be a whole number"),
    "ratio": ("schedule.min_ratio=nan", r"schedule\.min_ratio \(nan\) must lie from 0 to 1"),
    "fraction": ("schedule=wsd schedule.decay_fraction=0", r"schedule\.decay_fraction \(0\) must lie above 0"),
    "steps": ("trainer.max_steps=0", r"trainer\.max_steps \(0\) must be a whole number of at least 1"),
    "val-every": ("trainer.val_every=-5", r"trainer\.val_every \(-5\) must be a whole number"),
    "clip": ("trainer.clip_norm=nan", r"trainer\.clip_norm \(nan\) must be a number above 0, or null"),
    "precision": ("trainer.precision=bf17", r"precision \('bf17'\) must be one of auto"),
    "accelerator": ("trainer.accelerator=banana", r"cannot be had here"),
    # the path of a text
    "path-empty": ("data=text_files data.source.path=", r"data\.source\.path must be a text that is not empty, got ''"),
    "path-number": ("data=text_files data.source.path=5", r"data\.source\.path must be a text .* got 5"),
    "path-list": ("data=text_files data.source.path=[a,b]", r"data\.source\.path must be a single value, got"),
    "column": ("data=text_files data.source.path=a data.source.column=5", r"data\.source\.column must be a text"),
    # writing
    "comma": (["data=text_files", "data.source.path=a, b"], r"""quote it, 'data\.source\.path="a, b"'"""),
    "bracket": (["data=text_files", "data.source.path=a(b"], r"""quote it, 'data\.source\.path="a\(b"'"""),
    "equals": (["data=text_files", "data.source.path=a=b"], r"""quote it, 'data\.source\.path="a=b"'"""),
    "no-equals": ("gpt_tiny", r"'gpt_tiny' is neither key=value nor group=option"),
    "config-name": ("--config-name=foo", r"there is no config 'foo': leave --config-name away"),
    # a user's own experiment
    "mine-typo": (f"{MINE} +experiment=typo", r"'trainer\.max_step' is no key .*comes with \+experiment=typo"),
    "mine-kind": (f"{MINE} +experiment=kind", r"max_steps must be a whole number .*comes with \+experiment=kind"),
    "mine-null": (f"{MINE} +experiment=gone", r"optim cannot be null; it comes with \+experiment=gone"),
    "mine-range": (f"{MINE} +experiment=range", r"optim\.betas \(\[0\.9\]\)"),
    "mine-part": (f"{MINE} +experiment=part", r"'my_own' is no key of 'train'; it comes with"),
    "mine-and-typed": (f"{MINE} +experiment=range optim.betas=[0.9,0.9] seed=x", r"seed must be a whole number"),
    # places that cannot be written
    "folder": ("hydra.run.dir=a_file/x", r"Not a directory: .*a_file"),
}
GENERATE = {
    "no-run": ("", r"run=FOLDER"),
    "run-empty": ("run=", r"run=FOLDER"),
    "run-missing": ("run=nowhere", r"there is no run folder nowhere"),
    "run-foreign": ("run=mine", r"mine is no run folder of minitf"),
    "run-checkpoints": ("run=toy/checkpoints", r"lies inside a run; name the run's folder, run=toy"),
    "run-checkpoint": (
        "run=toy/checkpoints/last-step=30.ckpt",
        r"name the run's folder, run=toy\. checkpoint=best",
    ),
    "run-config": ("run=toy/config.yaml", r"lies inside a run; name the run's folder, run=toy"),
    "run-twice": ("run=a run=b", r"run was given twice"),
    "run-flag": ("--run=toy", r"settings are typed without dashes: run=toy"),
    "run-bare": ("toy", r"'toy' is neither key=value"),
    "checkpoint": ("run=toy checkpoint=newest", r"'newest'\) must be 'best', 'last', or"),
    "cut-short": ("run=cut", r"cannot be read as a checkpoint .* may be cut short"),
    "shape": ("run=shape", r"do not fit the model"),
    "foreign": ("run=foreign", r"holds no config of a minitf model"),
    "seed-negative": ("run=toy seed=-1", r"seed \(-1\) must be a whole number from 0"),
    "seed-huge": ("run=toy seed=99999999999999999999", r"seed \(9+\) must be a whole number from 0"),
    "seed-word": ("run=toy seed=a", r"seed must be a whole number such as 0, got 'a'"),
    "tokens": ("run=toy max_new_tokens=0", r"max_new_tokens must be at least 1, got 0"),
    "tokens-real": ("run=toy max_new_tokens=1e9", r"max_new_tokens must be a whole number"),
    "temperature": (
        "run=toy sampler.temperature=nan",
        r"sampler\.temperature must be 0 \(greedy\) or a positive number",
    ),
    "temperature-negative": ("run=toy sampler.temperature=-1", r"sampler\.temperature must be 0"),
    "top-k": ("run=toy sampler.top_k=2.5", r"sampler\.top_k must be a whole number .* got 2\.5"),
    "top-k-zero": ("run=toy sampler.top_k=0", r"sampler\.top_k must be a whole number .* got 0"),
    "top-k-list": ("run=toy sampler.top_k=[1]", r"sampler\.top_k must be a single value"),
    "top-p-word": ("run=toy sampler.top_p=foo", r"sampler\.top_p must lie above 0 and up to 1"),
    "top-p": ("run=toy sampler.top_p=nan", r"sampler\.top_p must lie above 0 and up to 1"),
    "sampler-null": ("run=toy sampler=null", r"sampler cannot be null"),
    "sampler-word": ("run=toy sampler=foo", r"change its keys: temperature, top_k, top_p"),
    "cache-null": ("run=toy cache=null", r"cache needs one option: cache=dynamic, .*cache=none, .*; got cache=null"),
    "cache-option": ("run=toy cache=dynamc", r"cache can be dynamic, int8, none, static, streaming, window"),
    "stop": ("run=toy stop=3", r"stop must be true or false, got 3"),
    "key": ("run=toy promt=x", r"'promt' is no key or group of 'generate'; nearest: prompt"),
    "experiment": ("run=toy +experiment=smoke", r"'trainer' is no key of 'generate'; it comes with \+experiment=smoke"),
    "group": ("run=toy model=gpt_tiny", r"'model' is no group of 'generate'; its groups: cache"),
    "sweep": ("-m run=toy seed=1,2", r"this command has no sweeps"),
    "sweep-behind": ("run=toy seed=1,2 --multirun", r"this command has no sweeps"),
    "flag": ("--foo run=toy", r"--foo is no flag"),
    "flag-between": ("run=toy seed=1 --info max_new_tokens=3", r"flags stand before the settings"),
    "several": ("run=toy seed=1,2", r"holds several values"),
    "prompt-long": (f"run=toy prompt={'a' * 100}", r"the prompt has 101 tokens, the model's learned position table 32"),
    "prompt-twice": ("run=toy prompt=a prompt_file=b", r"both given"),
    "prompt-file": ("run=toy prompt_file=none.txt", r"none\.txt cannot be read: No such file"),
    "prompt-folder": ("run=toy prompt_file=mine", r"mine cannot be read: Is a directory"),
    "prompt-latin": ("run=toy prompt_file=latin.txt", r"latin\.txt is not UTF-8: byte 0xe9 at offset 3"),
}
# refused when the data is read: the run has begun and its folder says why
DATA = {
    "path": ("nowhere", r"data\.source\.path=nowhere: no \*\.txt"),
    "latin": ("latin.txt", r"latin\.txt: byte 0xE9 at offset 3"),
    "empty-file": ("empty.txt", r"has 0 tokens, but one row needs"),
    "empty-folder": ("empty", r"no \*\.txt, \*\.jsonl, \*\.parquet file at"),
    "short": ("short.txt", r"tokens, but one row needs seq_len \+ 1 = 33. Give more text, or a smaller data\.seq_len"),
    "ending": ("a_file", r"ends with none of \.txt, \.jsonl, \.parquet"),
}


@pytest.fixture(scope="module")
def place(toy, tmp_path_factory) -> Path:
    """A folder with what the command lines name."""
    place = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(toy, place / "toy")
    for name, text in EXPERIMENTS.items():
        (place / "mine" / "experiment").mkdir(parents=True, exist_ok=True)
        (place / "mine" / "experiment" / f"{name}.yaml").write_text(f"# @package _global_\n{text}", encoding="utf-8")
    for name, change in {"cut": _cut, "shape": _other_shape, "foreign": _foreign}.items():
        shutil.copytree(toy, place / name)
        for path in (place / name / "checkpoints").iterdir():
            change(path)
    (place / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (place / "short.txt").write_text("short")
    for name in ("a_file", "empty.txt"):
        (place / name).touch()
    (place / "empty").mkdir()
    return place


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()  # best and last may be one file
    path.write_bytes(content[: len(content) // 2])


def _other_shape(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["config"]["model"]["vocab_size"] = 301
    path.unlink()
    torch.save(state, path)


def _foreign(path: Path) -> None:
    path.unlink()
    torch.save({"weights": torch.zeros(3)}, path)


@functools.cache
def _composed(name: str, overrides: tuple[str, ...], with_hydra: bool) -> DictConfig:
    return compose(name, overrides, with_hydra)


def _compose_once(name: str, overrides: Sequence[str] = (), return_hydra_config: bool = False) -> DictConfig:
    """`compose`, which the checks call with the same few choices for most rows of the tables."""
    return _composed(name, tuple(overrides), return_hydra_config).copy()


@pytest.fixture
def mistaken(place, monkeypatch):
    """Runs a command line in this process and gives what it wrote to stderr; the process stays as it was."""

    def run(name: str, typed: str | list[str]) -> str:
        arguments = typed.split() if isinstance(typed, str) else typed
        monkeypatch.setattr("sys.argv", [f"minitf-{name}", *arguments])
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            importlib.import_module(f"minitf.commands.{name}").main()
        assert ended.value.code == 2, err.getvalue()
        return err.getvalue()

    monkeypatch.chdir(place)
    monkeypatch.setenv("MINITF_CACHE", str(place / "cache"))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.delenv("MINITF_TRACE", raising=False)
    for module in ("config", "command_line", "explain"):
        monkeypatch.setattr(f"minitf.{module}.compose", _compose_once)
    before = dict(os.environ)
    GlobalHydra.instance().clear()
    yield run
    GlobalHydra.instance().clear()
    for key in set(os.environ) - set(before):
        del os.environ[key]
    shutil.rmtree(place / "runs", ignore_errors=True)


def check_message(stderr: str, wanted: str) -> None:
    lines = stderr.strip().splitlines()
    assert [line.startswith("error: ") for line in lines].count(True) == 1, stderr
    assert "Traceback" not in stderr
    assert "HYDRA_FULL_ERROR" not in stderr
    assert len(lines) <= 8, stderr
    assert re.search(wanted, stderr, re.DOTALL), stderr


# one in ten by default: they take half a second each
@pytest.mark.parametrize(("typed", "wanted"), parts.some_by_default(list(TRAIN.values()), 10), ids=TRAIN)
def test_train_refuses_before_the_run(mistaken, place, typed, wanted):
    check_message(mistaken("train", typed), wanted)
    assert not list(place.glob("runs/*")), "a refused command leaves no run folder"


@pytest.mark.parametrize(("typed", "wanted"), parts.some_by_default(list(GENERATE.values()), 3), ids=GENERATE)
def test_generate_refuses(mistaken, place, typed, wanted):
    before = sorted(place.iterdir())
    check_message(mistaken("generate", typed), wanted)
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize(("path", "wanted"), DATA.values(), ids=DATA)
def test_data_that_cannot_be_used(mistaken, path, wanted):
    check_message(mistaken("train", [*TOY, f"data.source.path={path}"]), wanted)


def test_a_character_that_the_vocabulary_lacks(mistaken, place):
    from runs import train_here

    write_corpus(place / "corpus")
    char = [typed for typed in TOY if "vocab_size" not in typed]
    source = f"data.source.path={place / 'corpus'}"
    train_here(place / "char", [*char, source, "data/tokenizer=char", "trainer.max_steps=5"])
    check_message(
        mistaken("generate", ["run=char", "prompt=the Ω"]), r"'Ω' \(U\+03A9\): not among .* data/tokenizer=bpe"
    )


def test_no_space_on_the_disk(mistaken, monkeypatch):
    def full(run):
        raise OSError(28, "No space left on device", "runs/x/status.json")

    monkeypatch.setattr("minitf.commands.train.Run.train", full)
    check_message(mistaken("train", [*TOY, "data.source.path=toy"]), r"No space left on device")


def test_the_trace_is_shown_on_demand(mistaken, monkeypatch):
    monkeypatch.setenv("MINITF_TRACE", "1")
    stderr = mistaken("train", "model.n_layers=0")
    assert "Traceback" in stderr
    assert stderr.strip().splitlines()[-1].startswith("error: n_layers")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("seed=1 -m model.n_layers=2", r"flags stand before the settings: \S+ -m seed=1 model\.n_layers=2"),
        ("--foo seed=1", r"--foo is no flag"),
        ("--seed=1", r"settings are typed without dashes: seed=1"),
        ("-x", r"-x is no flag"),
        ("model=null", r"model needs one option: .*model=gpt_tiny, .*; got model=null"),
        ("logger=null", r"logger needs one option: logger=csv, logger=wandb"),
        ("data=", r"data needs one option"),
        ("--multi seed=1,2", r"--multi is short for --multirun: write it out"),
        ("--resolve", r"--resolve goes with --cfg job"),
        ("@foo=3", r"neither key=value nor group=option"),
        ("data=1", r"data needs one option"),
        ("optim=True", r"optim needs one option"),
    ],
)
def test_what_hydra_must_not_see(typed, wanted):
    with pytest.raises(ConfigError, match=wanted):
        check_typed(typed.split())


@pytest.mark.parametrize("typed", ["-m seed=1,2", "seed=1 -m", "--config-dir x +experiment=y", "~cache"])
def test_flags_in_their_place_are_let_through(typed):
    check_typed(typed.split())


@pytest.mark.parametrize(
    "typed",
    parts.some_by_default(
        ["trainer.max_steps=5", "+experiment=smoke", "optim.lr=1", "model.attention.fast=null", "data.seed=3"], 3
    ),
)
def test_what_is_right_is_not_refused(mistaken, monkeypatch, typed):
    def begun(run):
        raise ConfigError("the run has begun")

    monkeypatch.setattr("minitf.commands.train.Run.train", begun)
    check_message(mistaken("train", typed), "the run has begun")


@pytest.mark.parametrize(
    ("name", "typed", "wanted"),
    [
        ("train", ["model.n_layer=3"], r"nearest: model\.n_layers"),
        # it imports the libraries first, which takes seconds
        pytest.param("train", ["optim.betas=[0.9]"], r"optim\.betas", marks=pytest.mark.slow),
        ("train", ["data=text_files", "data.source.path=a, b"], r"quote it"),
        ("generate", ["-m", "run=toy"], r"no sweeps"),
        ("generate", ["run=toy/checkpoints"], r"name the run's folder"),
    ],
)
def test_as_a_process_of_its_own(place, name, typed, wanted):
    done = command(name, *typed, cwd=place)
    assert done.returncode == 2, done.stderr
    assert not done.stdout
    check_message(done.stderr, wanted)
    assert not list(place.glob("runs/*"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data=reverse", "task=causal_lm", "model=gpt_tiny"],
            r"the data \(Reverse\) is made for task=seq2seq, not for CausalLM",
        ),
        (["model=bert_tiny", "data=reverse", "task=masked_lm"], r"made for task=seq2seq, not for MaskedLM"),
        (
            ["task=masked_lm", "data.tokenizer.special=[bos]"],
            r"has no id for a hidden one: add data\.tokenizer\.special",
        ),
        (
            ["task=classify", "data=majority", "model=gpt_tiny"],
            r"'model/head' is no group of .*model=bert_tiny.* brings it",
        ),
        (["model=encdec_tiny", "task=causal_lm", "data=shakespeare"], r"reads a source as well: use"),
        (["model=bert_tiny", "task=causal_lm"], r"the model's mask shows it"),
        (["model=bahdanau", "trainer.compile=true"], r"leave trainer\.compile=false"),
        (["model=encdec_tiny", "data=reverse", "data.n_val=1000000000000"], r"data\.n_val \(1,000,000,000,000\)"),
        (["model=bert_tiny", "task=masked_lm", "task.mask=nan"], r"must be numbers"),
        (["-m", "model=gpt_tiny,bert_tiny"], r"cannot be one sweep, they go with different data"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_refused(mistaken, place, overrides, message):
    check_message(mistaken("train", overrides), message)
    assert not list(place.glob("runs/*"))


@pytest.mark.parametrize(
    ("closed", "typed", "code", "wanted"),
    [
        (">&-", "--cfg job", 2, r"standard output is closed"),
        ("<&-", "run=toy prompts=-", 2, r"standard input is closed"),
        ("2>&-", "run=toy cache=nothing", 2, None),
    ],
)
def test_closed_streams_give_no_trace(place, closed, typed, code, wanted):
    program = "import sys; sys.argv[0] = 'minitf-generate'; from minitf.commands.generate import main; main()"
    shell = f'exec "$0" -c "$1" {typed} {closed}'
    done = subprocess.run(["sh", "-c", shell, sys.executable, program], cwd=place, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    if wanted:
        check_message(done.stderr, wanted)
