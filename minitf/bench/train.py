"""bench=train: what Lightning costs, and how fast a step is beside transformers' GPT-2."""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from minitf.bench.contenders import Shape, Step, gpt2_step, minitf_step, require_transformers, step_of
from minitf.bench.timing import CLOCKS, Clock, interleave, ratios, table
from minitf.blocks.checks import check_positive
from minitf.config import build, compose, set_data_facts
from minitf.errors import ConfigError
from minitf.training.callbacks import quiet_lightning
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.precision import resolve_precision
from minitf.training.task import Task
from minitf.training.trainer import make_trainer

WARM_UP = 5


def run(
    *, threads: int, clock: str, rounds: int, overhead_steps: int, steps: int, shape: dict[str, int], folder: Path
) -> dict[str, Any]:
    """Time both comparisons, print them, and return all figures.

    Args:
        threads: threads of torch.
        clock: "cpu" (seconds of this process) or "wall".
        rounds: rounds that count, after one to warm up.
        overhead_steps: steps of gpt_tiny per round.
        steps: steps of the larger model per round.
        shape: size of the larger model.
        folder: where the trainers of the first comparison may write.

    Raises:
        ConfigError: an unknown clock, numbers below 1, or no transformers.
    """
    if clock not in CLOCKS:
        raise ConfigError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    check_positive(threads=threads, rounds=rounds, overhead_steps=overhead_steps, steps=steps)
    require_transformers()
    torch.set_num_threads(threads)
    quiet_lightning()
    print(f"{threads} thread(s), {clock} clock, {rounds} rounds in turn after one to warm up\n")
    return {
        "lightning": lightning_overhead(CLOCKS[clock], rounds, overhead_steps, folder),
        "gpt2": against_gpt2(CLOCKS[clock], rounds, steps, Shape(**shape)),
    }


def lightning_overhead(clock: Clock, rounds: int, steps: int, folder: Path) -> dict[str, Any]:
    """The default run's step under Lightning against a plain loop: same model, batch, dtype, optimizer, clipping."""
    run_cfg = compose("train")
    set_data_facts(run_cfg, vocab_size=run_cfg.data.tokenizer.vocab_size)
    rows, length = run_cfg.data.batch_size, run_cfg.data.seq_len
    ids = random_ids(run_cfg.data.vocab_size, rows, length + 1)
    batch = {"ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous(), "n_scored": rows * length}
    n_steps = steps + WARM_UP

    def plain() -> float:
        torch.manual_seed(0)
        model = build(run_cfg.model)
        step = step_of(model, CausalLM(), build(run_cfg.optim)(model), resolve_precision("auto"))
        return time_steps(step, batch["ids"], batch["targets"], steps, clock)

    def lightning() -> float:
        torch.manual_seed(0)
        watch = StopWatch(clock)
        trainer = make_trainer(
            folder,
            build(run_cfg.logger)(run_dir=folder, config={}),
            [watch],
            **{k: v for k, v in run_cfg.trainer.items() if not k.startswith("_")}
            | {"max_steps": n_steps, "val_every": 10 * n_steps, "accelerator": "cpu"},
        )
        task = Task(
            build(run_cfg.model),
            CausalLM(),
            build(run_cfg.optim),
            build(run_cfg.schedule),
            seed=0,
            log_every=run_cfg.trainer.log_every,
        )
        trainer.fit(task, Repeated(batch, n_steps), Repeated(batch, 1))
        return watch.seconds_per_step(steps)

    names = {"plain loop": plain, "Lightning, logging as by default": lightning}
    timings = interleave(names, dict.fromkeys(names, rows * length), rounds)
    speed = ratios(*timings)
    print(f"gpt_tiny, default recipe, {rows} x {length} tokens a step")
    print(table(timings))
    print(f"speed of Lightning / plain loop: {summary(speed)}\n")
    return {"seconds": {t.name: t.seconds for t in timings}, "lightning_over_plain": speed}


def against_gpt2(clock: Clock, rounds: int, n_steps: int, shape: Shape) -> dict[str, Any]:
    """A step of minitf against transformers' GPT-2 of the same shape, in both precisions, and the memory of both."""
    ids = random_ids(shape.vocab_size, shape.batch_size, shape.seq_len + 1)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    steps = {name: make(shape) for name, make in CONTENDERS.items()}
    contenders = {
        name: lambda step=step: time_steps(step, inputs, targets, n_steps, clock, warm_up=1)
        for name, step in steps.items()
    }
    timings = interleave(contenders, dict.fromkeys(contenders, inputs.numel()), rounds)
    by_name = {t.name: t for t in timings}
    del steps, contenders
    print(
        f"{shape.n_layers} layers, {shape.n_heads} heads, d_model {shape.d_model}, vocabulary {shape.vocab_size}, "
        f"{shape.batch_size} x {shape.seq_len} tokens a step"
    )
    print(table(timings))
    comparisons = {
        "default precision against GPT-2 in fp32": (GPT2_FP32, MINITF_BF16),
        "equal precision, fp32": (GPT2_FP32, MINITF_FP32),
        "equal precision, bf16": (GPT2_BF16, MINITF_BF16),
        "default precision and optimizer against GPT-2 in fp32": (GPT2_FP32, MINITF_MUON),
    }
    speed = {what: ratios(by_name[slow], by_name[fast]) for what, (slow, fast) in comparisons.items()}
    for what, values in speed.items():
        print(f"minitf is faster by, {what}: {summary(values)}")
    memory = {name: peak_memory(name, shape) for name in CONTENDERS}
    for name, mib in memory.items():
        print(f"peak memory growth of {MEMORY_STEPS} steps, {name}: {mib:.0f} MiB")
    return {"seconds": {t.name: t.seconds for t in timings}, "faster_by": speed, "peak_mib": memory}


MINITF_BF16, MINITF_FP32 = "minitf, bf16 where it helps, AdamW", "minitf, fp32, AdamW"
MINITF_MUON = "minitf, bf16 where it helps, Muon"
GPT2_FP32, GPT2_BF16 = "transformers GPT-2, fp32, AdamW", "transformers GPT-2, bf16 autocast, AdamW"
MEMORY_STEPS = 3


def _minitf(optimizer: str, precision: str) -> Callable[[Shape], Step]:
    return lambda shape: minitf_step(compose("train", [f"optim={optimizer}"]), shape, precision)


CONTENDERS: dict[str, Callable[[Shape], Step]] = {
    MINITF_BF16: _minitf("adamw", "auto"),
    MINITF_FP32: _minitf("adamw", "32-true"),
    MINITF_MUON: _minitf("muon", "auto"),
    GPT2_FP32: lambda shape: gpt2_step(shape, "32-true"),
    GPT2_BF16: lambda shape: gpt2_step(shape, "bf16-mixed"),
}


class Repeated:
    """One batch, n times: a stream without any cost of its own."""

    def __init__(self, batch: dict[str, Any], n: int) -> None:
        self.batch, self.n = batch, n

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return itertools.repeat(self.batch, self.n)


class StopWatch(Callback):
    """Notes the time after every step."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.times: list[float] = []

    def on_train_batch_end(self, *args: object) -> None:
        self.times.append(self.clock())

    def seconds_per_step(self, n: int) -> float:
        """Mean over the n steps behind the warm-up."""
        return (self.times[WARM_UP + n - 1] - self.times[WARM_UP - 1]) / n


def time_steps(step: Step, ids: Tensor, targets: Tensor, n: int, clock: Clock, warm_up: int = WARM_UP) -> float:
    """Seconds per step over n steps, after some to warm up."""
    for _ in range(warm_up):
        step(ids, targets)
    start = clock()
    for _ in range(n):
        step(ids, targets)
    return (clock() - start) / n


def random_ids(vocab_size: int, rows: int, length: int) -> Tensor:
    """(rows, length) ids, always the same."""
    return torch.randint(vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))


def peak_memory(name: str, shape: Shape) -> float:
    """MiB that a fresh process grows by at most, from the finished model through some steps."""
    code = "import sys; from minitf.bench.train import print_growth; print_growth(*sys.argv[1:])"
    arguments = [name, json.dumps(asdict(shape)), str(torch.get_num_threads())]
    done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def print_growth(name: str, shape: str, threads: str) -> None:
    """What the fresh process of `peak_memory` does."""
    torch.set_num_threads(int(threads))
    sizes = Shape(**json.loads(shape))
    step = CONTENDERS[name](sizes)
    ids = random_ids(sizes.vocab_size, sizes.batch_size, sizes.seq_len + 1)
    before = resident_mib("VmRSS")
    for _ in range(MEMORY_STEPS):
        step(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    print(resident_mib("VmHWM") - before)


def resident_mib(field: str) -> float:
    """Resident memory of this process in MiB: now ("VmRSS"), or at most so far ("VmHWM").

    Linux tells both. Elsewhere there is only the maximum so far, which stands in for both.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def summary(values: list[float]) -> str:
    """Median and range."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.2f} [{ordered[0]:.2f}, {ordered[-1]:.2f}]"
