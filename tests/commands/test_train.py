import csv
import json
import math
import re
import shutil

import parts
import pytest
import torch
from runs import TOY, command, train_here, write_corpus

from minitf.config import compose
from minitf.errors import ConfigError, DataError
from minitf.runs import load_run
from minitf.training.checkpoint import find_checkpoint, read_checkpoint


def test_run_folder_holds_everything_and_nothing_lies_beside_it(toy):
    assert {p.name for p in toy.iterdir()} == {
        "config.yaml",
        "tokenizer.json",
        "metrics.csv",
        "metrics.json",
        "record.json",
        "status.json",
        "checkpoints",
    }
    status = json.loads((toy / "status.json").read_text())
    assert (status["status"], status["step"], status["reason"]) == ("finished", 30, None)


def test_metrics_tell_what_they_are_divided_by_and_agree(toy):
    metrics = json.loads((toy / "metrics.json").read_text(encoding="utf-8"))
    rows = list(csv.DictReader((toy / "metrics.csv").open()))
    validations = [r for r in rows if r["val/loss"]]
    assert [int(r["step"]) for r in validations] == [10, 20, 30]
    assert float(validations[-1]["val/loss"]) == pytest.approx(metrics["final"]["val/loss"], rel=1e-6)
    data = json.loads((toy / "record.json").read_text(encoding="utf-8"))["data"]
    n_scored = data["val_tokens"] - 1
    bits = metrics["final"]["val/loss"] * n_scored / math.log(2) / data["val_bytes"]
    assert metrics["final"]["val/bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert metrics["best"]["val/loss"] == pytest.approx(min(float(r["val/loss"]) for r in validations), rel=1e-6)
    assert [int(r["step"]) for r in rows if r["train/loss"]] == [5, 10, 15, 20, 25, 30]
    model, _, _ = load_run(toy)
    assert metrics["n_params"] == sum(p.numel() for p in model.parameters())


def test_first_loss_is_near_ln_v(toy):
    cfg = load_run(toy)[2]
    first = next(r for r in csv.DictReader((toy / "metrics.csv").open()) if r["train/loss"])
    assert float(first["train/loss"]) < 1.1 * math.log(cfg.data.vocab_size)


def test_checkpoints_load_with_weights_only_and_rebuild_the_model(toy):
    for which in ("best", "last"):
        path = find_checkpoint(toy, which)
        state = torch.load(path, weights_only=True)
        assert state["config"]["data"]["vocab_size"] == 300
        model, tokenizer, _ = load_run(toy, which)
        assert not model.training
        assert tokenizer.vocab_size == 300
        stored = {k.removeprefix("model."): v for k, v in state["state_dict"].items()}
        assert all(torch.equal(value, stored[name]) for name, value in model.state_dict().items())
    assert read_checkpoint(find_checkpoint(toy, "last"))["global_step"] == 30


def test_the_same_seed_gives_the_same_run_and_another_seed_another(toy, tmp_path):
    source = f"data.source.path={toy.parent / 'corpus'}"
    again = train_here(tmp_path / "again", [*TOY, source])
    other = train_here(tmp_path / "other", [*TOY, source, "seed=1"])

    def losses(folder):
        return [r["train/loss"] for r in csv.DictReader((folder / "metrics.csv").open()) if r["train/loss"]]

    assert losses(again) == losses(toy)
    assert all(a != b for a, b in zip(losses(other), losses(toy), strict=True))


def test_accumulation_changes_the_memory_and_not_the_result(toy, tmp_path):
    # with AdamW: Muon makes directions of tiny gradients large, and with them their rounding
    common = [*TOY, f"data.source.path={toy.parent / 'corpus'}", "optim=adamw", "trainer.precision=32-true"]
    common.append("trainer.max_steps=5")
    whole = load_run(train_here(tmp_path / "whole", common))[0]
    parts = load_run(train_here(tmp_path / "parts", [*common, "trainer.accumulate=4"]))[0]
    for (name, a), b in zip(whole.named_parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0, msg=name)


def test_a_used_folder_is_refused(toy):
    with pytest.raises(ConfigError, match="already holds a run"):
        train_here(toy, [*TOY, "data.source.path=x"])
    assert json.loads((toy / "status.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("override", "message"),
    parts.some_by_default(
        [
            ("model/mask=full", "the model's mask shows it"),
            ("model.attention.n_heads=5", "must be a multiple of n_heads"),
            ("trainer.max_steps=0", r"trainer\.max_steps .* at least 1"),
            ("trainer.accumulate=3", "batch_size"),
            ("optim.lr=-1", "lr"),
            ("trainer.precision=bf17", "precision"),
            ("schedule.warmup_steps=-1", "warmup_steps"),
            ("trainer.devices=3", r"batch_size \(4\) .* each of 3 processes"),
            ("trainer.accelerator=banana", "cannot be had here"),
            ("trainer.strategy=banana", "auto, ddp, fsdp"),
            ("optim.lr=inf", "finite"),
        ],
        3,
    ),
)
def test_wrong_choices_are_refused_before_the_data_is_read(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        train_here(tmp_path / "run", [*TOY, "data.source.path=does-not-exist", override])


def test_a_run_that_diverges_fails_and_says_so(toy, tmp_path):
    diverging = [f"data.source.path={toy.parent / 'corpus'}", "optim=adamw", "optim.lr=1e30", "trainer.clip_norm=null"]
    with pytest.raises(DataError, match=r"not finite in step \d+ \(learning rate .* is that of layers"):
        train_here(tmp_path / "run", [*TOY, *diverging])
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "failed"


def test_a_failed_run_says_so(tmp_path):
    with pytest.raises(DataError, match="does-not-exist"):
        train_here(tmp_path / "run", [*TOY, "data.source.path=does-not-exist"])
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "failed"
    assert "does-not-exist" in status["reason"]


@pytest.mark.slow
def test_command_from_another_folder_with_relative_paths_and_two_runs_at_once(tmp_path):
    write_corpus(tmp_path / "texts")
    typed = [*TOY, "data.source.path=texts", "trainer.max_steps=5"]
    env = {"MINITF_CACHE": str(tmp_path / "cache")}
    done = [command("train", *typed, f"hydra.job.chdir={c}", cwd=tmp_path, **env) for c in ("false", "true")]
    for run in done:
        assert run.returncode == 0, run.stderr
        assert "byte 5-gram" in run.stdout
        assert "a sample of 200 characters" in run.stdout
        assert "minitf-generate run=runs/" in run.stdout
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 2, "two runs must never share a folder"
    assert {p.name for p in tmp_path.iterdir()} == {"texts", "cache", "runs"}
    line = next(line for line in done[0].stdout.splitlines() if "minitf-generate" in line)
    written = command("generate", *line.replace("'", "").split()[1:3], "max_new_tokens=5", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    shutil.rmtree(tmp_path / "runs")


@pytest.mark.parametrize(
    ("arguments", "message"),
    parts.some_by_default(
        [
            (["model=gpt_tny"], "gpt_tiny"),
            (["mdel=gpt_tiny"], "nearest: model"),
            (["model.n_layer=3"], "model.n_layers"),
            (["+model.n_layer=3"], "model.n_layers"),
            (["model.n_layers=two"], "a whole number"),
            (["model.attention=mqa"], "model/attention=mqa chooses an option"),
            (["trainer.max_steps=null"], "trainer.max_steps cannot be null"),
            (["data=text_files"], "give data.source.path="),
            (["hydra.run.dir=/proc/x"], "/proc/x"),
        ],
        3,
    ),
)
def test_a_mistyped_command_gives_one_message_and_code_2(arguments, message, tmp_path):
    done = command("train", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 6
    assert not list(tmp_path.glob("runs/*")), "a refused command leaves no run folder"


@pytest.mark.slow
def test_sweep_keeps_its_jobs_apart(tmp_path):
    write_corpus(tmp_path / "texts")
    typed = [*TOY, "data.source.path=texts", "trainer.max_steps=5", "logger=wandb"]
    done = command("train", "-m", *typed, "seed=0,1", cwd=tmp_path, MINITF_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    (sweep,) = (tmp_path / "runs").iterdir()
    assert re.search(rf"^compare the runs: \S.*ablate\S* runs=runs/{sweep.name}$", done.stdout, re.MULTILINE)
    jobs = sorted(p for p in sweep.iterdir() if p.is_dir())
    assert [json.loads((p / "metrics.json").read_text())["seed"] for p in jobs] == [0, 1]
    offline = [list(p.glob("wandb/offline-run-*")) for p in jobs]
    assert [len(found) for found in offline] == [1, 1], "each job has a wandb run of its own"


def test_the_default_configuration_composes_for_every_preset():
    for model in ("gpt_tiny", "llama_tiny"):
        assert compose("train", [f"model={model}"]).model._target_ == "minitf.models.decoder.Decoder"
