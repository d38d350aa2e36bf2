"""bench=decode: writing with a cache beside transformers' Llama, time against context, and memory of every cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minitf.bench.decode_cache import memory_rows, memory_table
from minitf.bench.decode_contenders import (
    WARM_UP,
    LlamaShape,
    copy_weights,
    minitf_model,
    minitf_writer,
    require_libraries,
    transformers_model,
    transformers_writer,
)
from minitf.bench.decode_plot import draw
from minitf.bench.decode_report import SAME, context_table, differences, speed_table, summary
from minitf.bench.timing import CLOCKS, Clock, Timing, interleave, ratios
from minitf.blocks.checks import check_positive
from minitf.errors import ConfigError
from minitf.generation.prepare import prepare_decode

DYNAMIC, STATIC, COMPILED = "minitf, dynamic cache", "minitf, static cache", "minitf, static cache, compiled"
UNCACHED = "minitf, no cache"
HF_DYNAMIC, HF_STATIC = "transformers, dynamic cache", "transformers, static cache"
HF_COMPILED = "transformers, static cache, compiled"


def run(
    *,
    threads: int,
    clock: str,
    rounds: int,
    batch_sizes: Sequence[int],
    prompt_tokens: int,
    new_tokens: int,
    compile: bool,
    contexts: Sequence[int],
    context_tokens: int,
    shape: dict[str, int],
    folder: Path,
) -> dict[str, Any]:
    """Time and measure, print tables, draw a plot, and return all figures.

    Args:
        threads: threads of torch.
        clock: "cpu" (seconds of this process) or "wall".
        rounds: rounds that count, after one to warm up.
        batch_sizes: rows that are written at once; each is a table.
        prompt_tokens: tokens that are there.
        new_tokens: tokens that are written.
        compile: time compiled steps, too.
        contexts: numbers of tokens before the one that is written.
        context_tokens: tokens that are written around each of them.
        shape: size of the model.
        folder: where the plot goes.

    Raises:
        ConfigError: an unknown clock, numbers that do not fit, or a library that is missing.
    """
    _check(clock, contexts, new_tokens, context_tokens, batch_sizes)
    check_positive(threads=threads, rounds=rounds, prompt_tokens=prompt_tokens)
    require_libraries()
    torch.set_num_threads(threads)
    from transformers.utils import logging

    logging.set_verbosity_error()
    sizes = LlamaShape(**shape)
    twins = Twins(sizes)
    print(
        f"Llama: {sizes.n_layers} layers, {sizes.n_heads} heads, {sizes.n_kv_heads} of keys and values, d_model "
        f"{sizes.d_model}, d_ff {sizes.d_ff}, vocabulary {sizes.vocab_size};\n"
        f"{twins.n_params:,} parameters on both sides, the same weights, float32, greedy.\n"
        f"{threads} thread(s), {clock} clock, {rounds} rounds in turn after one to warm up. A step's time is the mean\n"
        f"over a text without its first {WARM_UP} tokens, the one that reads the prompt and the next, for all alike.\n"
    )
    how = {"clock": CLOCKS[clock], "rounds": rounds}
    figures: dict[str, Any] = {"n_params": twins.n_params, "batches": {}}
    for rows in batch_sizes:
        prompt = random_ids(sizes.vocab_size, rows, prompt_tokens)
        figures["batches"][rows] = against_transformers(twins, prompt, new_tokens, compiled=compile, **how)
    times = against_context(twins, contexts, context_tokens, sizes.vocab_size, **how)
    memory = memory_rows(sizes, contexts)
    print(f"memory of all layers' caches, one row\n{memory_table(memory)}\n")
    paths = draw(folder, contexts, times, memory)
    print(f"plot: {' and '.join(str(path) for path in paths)}")
    figures["contexts"] = {name: {t.name: t.seconds for t in timings} for name, timings in times.items()}
    return {**figures, "memory": [asdict(row) for row in memory]}


class Twins:
    """The two models, and minitf's made fast for one-row steps."""

    def __init__(self, shape: LlamaShape) -> None:
        self.theirs = transformers_model(shape)
        self.plain = minitf_model(shape)
        self.n_params = copy_weights(self.theirs, self.plain)
        self.ours = prepare_decode(self.plain)


def against_transformers(
    twins: Twins, prompt: Tensor, n: int, *, clock: Clock, rounds: int, compiled: bool
) -> dict[str, Any]:
    """All contenders on one batch: their times, and whether they write the same."""
    writers = {
        DYNAMIC: minitf_writer(twins.ours, clock, "dynamic"),
        STATIC: minitf_writer(twins.ours, clock, "static"),
        HF_DYNAMIC: transformers_writer(twins.theirs, clock, "dynamic"),
        HF_STATIC: transformers_writer(twins.theirs, clock, "static"),
    }
    if prompt.size(0) == 1:  # with more rows it takes minutes and shows nothing new
        writers[UNCACHED] = minitf_writer(twins.ours, clock, None)
    if compiled:
        torch._dynamo.reset()  # graphs of another batch size would be made more general
        writers[COMPILED] = minitf_writer(prepare_decode(twins.plain, compile=True), clock, "static")
        writers[HF_COMPILED] = transformers_writer(twins.theirs, clock, "static", compiled=True)
    texts: dict[str, Tensor] = {}
    first: dict[str, float] = {}
    graphs = dict.fromkeys(writers, 0)

    def once(name: str) -> float:
        start, before = time.perf_counter(), n_graphs()
        written = writers[name](prompt, n)
        first.setdefault(name, time.perf_counter() - start)
        graphs[name] += n_graphs() - before
        texts[name] = written.ids
        return written.seconds_per_step

    contenders = {name: lambda name=name: once(name) for name in writers}
    timings = interleave(contenders, dict.fromkeys(writers, prompt.size(0)), rounds)
    _tell(timings, prompt, n, graphs, first)
    same = differences(texts, HF_DYNAMIC)
    odd = [f"{name} {what}" for name, what in same.items() if what != SAME]
    told = f"TOKENS ARE NOT THE SAME as of {HF_DYNAMIC}: {'; '.join(odd)}" if odd else "all write the same tokens"
    print(f"{told} ({len(set(texts[HF_DYNAMIC][0].tolist()))} different ones among {n})\n")
    return {"seconds": {t.name: t.seconds for t in timings}, "graphs": graphs, "tokens": same}


def _tell(timings: list[Timing], prompt: Tensor, n: int, graphs: dict[str, int], first: dict[str, float]) -> None:
    by_name = {t.name: t for t in timings}
    bases = [name for name in (HF_DYNAMIC, HF_STATIC, HF_COMPILED) if name in by_name]
    print(f"{prompt.size(0)} row(s), {prompt.size(1)} tokens and {n} new ones\n{speed_table(timings, bases)}")
    if UNCACHED in by_name:
        print(f"cached against uncached: {summary(ratios(by_name[UNCACHED], by_name[DYNAMIC]))} times as fast")
    for name in (COMPILED, HF_COMPILED):
        if name in by_name:
            print(f"{name}: {graphs[name]} graph(s), warm-up of {first[name]:.0f} s of wall time, not counted")
    by_itself = f"{graphs[HF_STATIC]} graph(s) compiled by itself" if graphs[HF_STATIC] else "not compiled on a CPU"
    print(f"{HF_STATIC}: {by_itself}")


def against_context(
    twins: Twins, contexts: Sequence[int], n: int, vocab_size: int, *, clock: Clock, rounds: int
) -> dict[str, list[Timing]]:
    """Time per token around each number of tokens before it."""
    writers = {
        DYNAMIC: minitf_writer(twins.ours, clock, "dynamic"),
        STATIC: minitf_writer(twins.ours, clock, "static"),
        HF_DYNAMIC: transformers_writer(twins.theirs, clock, "dynamic"),
    }
    prompts = {context: random_ids(vocab_size, 1, context - n // 2) for context in contexts}
    cells = {f"{name}, {context}": (name, context) for context in contexts for name in writers}
    contenders = {
        cell: lambda name=name, context=context: writers[name](prompts[context], n).seconds_per_step
        for cell, (name, context) in cells.items()
    }
    timings = interleave(contenders, dict.fromkeys(cells, 1), rounds)
    times = {name: [t for t in timings if cells[t.name][0] == name] for name in writers}
    print(f"{n} tokens written around each context, one row\n{context_table(contexts, times)}\n")
    return times


def n_graphs() -> int:
    """Graphs that torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def random_ids(vocab_size: int, rows: int, length: int) -> Tensor:
    """(rows, length) ids, always the same."""
    return torch.randint(vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))


def _check(
    clock: str, contexts: Sequence[int], new_tokens: int, context_tokens: int, batch_sizes: Sequence[int]
) -> None:
    if clock not in CLOCKS:
        raise ConfigError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    check_positive(**{f"batch_sizes[{i}]": rows for i, rows in enumerate(batch_sizes)})
    check_positive(**{f"contexts[{i}]": n for i, n in enumerate(contexts)})
    for name, n in {"new_tokens": new_tokens, "context_tokens": context_tokens}.items():
        check_positive(**{name: n})
        if n <= WARM_UP:
            raise ConfigError(f"{name} ({n}) must be above {WARM_UP}: so many tokens of each text are not counted")
    if len(contexts) < 2 or sorted(set(contexts)) != list(contexts):
        raise ConfigError(f"contexts must be two or more growing numbers, got {list(contexts)}")
    if contexts[0] <= context_tokens // 2:
        raise ConfigError(
            f"contexts begin at {contexts[0]}, but half of context_tokens ({context_tokens}) is written before that: "
            "write fewer"
        )
