"""What a finished training run tells: metrics.json for programs, a few lines for people."""

from __future__ import annotations

import platform
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitf import __version__
from minitf.hints import command, show_path

if TYPE_CHECKING:
    import lightning as L
    from torch import nn

    from minitf.command_line import Job
    from minitf.data.base import BaseData
    from minitf.training.saving import RunCheckpoint
    from minitf.training.task import Task

SAMPLE_CHARACTERS = 200


def record(data: BaseData, trainer: L.Trainer, job: Job) -> dict[str, Any]:
    """What record.json holds from the start of a run: what was typed, the data, the versions and the machine."""
    import lightning
    import torch

    return {
        "overrides": job.overrides,
        "choices": job.choices,
        "data": data.record,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "minitf": __version__,
        "threads": torch.get_num_threads(),
        "precision": str(trainer.precision),
        "device": str(trainer.strategy.root_device),
    }


def collect(config: dict[str, Any], data: BaseData, task: Task, n_steps: int, saved: RunCheckpoint) -> dict[str, Any]:
    """Everything that metrics.json holds.

    Args:
        config: the resolved config.
        data: prepared data.
        task: after training.
        n_steps: optimizer steps done.
        saved: knows the best step, the time, and where the history of the metrics lies.
    """
    from minitf.training.metrics import read_metrics

    metrics: dict[str, float] = {}
    for row in read_metrics(saved.folder.parent):
        metrics.update({name: value for name, value in row.items() if name != "step"})
    return {
        "config": config,
        "seed": config["seed"],
        "n_params": sum(p.numel() for p in task.model.parameters()),
        "steps": n_steps,
        "final": metrics,
        "best": {"step": saved.best_step, "val/loss": saved.best_value},
        "baseline": data.baselines(),
        "train_seconds": round(saved.seconds, 1),
        "train_tokens_per_s": round(task.throughput.overall()),
    }


def sample_text(model: nn.Module, data: BaseData, seed: int) -> str | None:
    """The first characters that the model writes from the start of a document; None if it writes no text."""
    from minitf.cache.dynamic import Dynamic
    from minitf.commands.generate import stream, writes_text
    from minitf.generation.sampling import Sample

    text = ""
    if not writes_text(model, getattr(data, "tokenizer", None)):
        return None
    pieces = stream(
        model,
        data.tokenizer,
        "",
        sampler=Sample(temperature=0.8, top_k=None, top_p=None),
        make_cache=Dynamic,
        max_new_tokens=SAMPLE_CHARACTERS,
        seed=seed,
        stop=False,
    )
    for piece in pieces:
        text += piece
        if len(text) >= SAMPLE_CHARACTERS:
            break
    return text[:SAMPLE_CHARACTERS]


def describe(metrics: dict[str, Any], sample: str | None, prompt: str, folder: Path, has_heads: bool = False) -> str:
    """The lines that end a training run: how it went, a sample of text, and what to type next with a fitting prompt.

    Args:
        metrics: what `collect` gave.
        sample: text that the model wrote; None where it writes none.
        prompt: a beginning that the tokenizer knows.
        folder: of the run.
        has_heads: whether the model has attention to look at.
    """
    final, best = metrics["final"], metrics["best"]
    unit = "answer" if sample is None else "token"
    lines = [f"validation loss   {final['val/loss']:.4f} nats per {unit}{_bits(final)} (whole split)"]
    if "val/accuracy" in final:
        lines.append(f"accuracy          {final['val/accuracy']:.4f} of the answers (whole split)")
    if "val/exact" in final:
        lines.append(f"exact match       {final['val/exact']:.4f} of the rows, all of whose answers are right")
    lines.append(f"best              {best['val/loss']:.4f} nats per {unit} at step {best['step']}")
    ngram = metrics["baseline"].get("witten_bell_byte_5gram_bits_per_byte")
    if ngram is not None and "val/bits_per_byte" in final:
        side = "better" if final["val/bits_per_byte"] < ngram else "NOT better"
        lines.append(f"byte 5-gram       {ngram:.4f} bits per byte on the same split: the model is {side}")
    lines += [
        f"parameters        {metrics['n_params']:,}",
        f"speed             {metrics['train_tokens_per_s']:,} tokens/s, {metrics['train_seconds']:.0f} s in all",
        f"run folder        {show_path(folder)}",
    ]
    run = shlex.quote(show_path(folder))
    shown = [] if sample is None else _shown(sample)
    ways = _ways_to_write(run, prompt) if sample is not None else [f"  {command('evaluate')} run={run}"]
    if has_heads:
        ways.append(f"  {command('analyze')} run={run}")
    return "\n".join(["", *lines, *shown, "", "next:", *ways])


def _bits(final: dict[str, float]) -> str:
    return f" = {final['val/bits_per_byte']:.4f} bits per byte" if "val/bits_per_byte" in final else ""


def _shown(sample: str) -> list[str]:
    return ["", f"a sample of {SAMPLE_CHARACTERS} characters:", *(f"  | {line}" for line in sample.split("\n"))]


def _ways_to_write(run: str, prompt: str) -> list[str]:
    start = f"  {command('generate')} run={run} prompt={shlex.quote(prompt)}"
    return [start, f"{start} sampler.temperature=0"]


def opening(data: BaseData) -> str:
    """A prompt that the model's tokenizer knows: how a definition begins, or the first word of the training text."""
    if data.gives != "text":
        return ""
    if data.name == "python_stdlib":
        return "def "
    return " ".join(data.train_texts[0].split()[:1])[:20]
