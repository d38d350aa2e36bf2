"""demo=memory: parameters, operations and bytes of any model, by formula and as measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from omegaconf import DictConfig
from torch import nn

from minitf.blocks.checks import check_positive
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.demo import measure
from minitf.demo.cost import Sizes, cache_bytes, projections, scores_bytes
from minitf.demo.parts import Block, Part, Shape, attention_blocks, parts
from minitf.demo.record import batch_for, build_model
from minitf.demo.text import paragraph, table

NO_FORMULA = "-"


def memory(*, batch: int, length: int, src_length: int, long_length: int, long_heads: int, config: DictConfig) -> str:
    """Three tables: parameters and FLOPs per part, bytes, and what fewer key/value heads would save.

    Args:
        batch, length: rows B, tokens T of the pass that is measured.
        src_length: tokens S of the other sequence, for a model that reads two.
        long_length, long_heads: of the row whose scores are put into numbers at the end.
        config: its `model` is built and run a few times.

    Raises:
        ConfigError: sizes below 1, or parts that do not fit together.
    """
    given = {"batch": batch, "length": length, "src_length": src_length}
    given |= {"long_length": long_length, "long_heads": long_heads}
    check_positive(**{f"demo.{name}": value for name, value in given.items()})
    model = build_model(config)
    inputs = batch_for(model, config.data, batch, length, src_length)
    counted, output = measure.forward_flops(model, inputs)
    shape = Shape(batch, length, src_length if "src" in inputs else None, output.numel() // output.size(-1))
    source = f", and of {src_length} tokens of the source" if "src" in inputs else ""
    return "\n\n".join(
        [
            f"{type(model).__name__}, a pass over {batch} rows of {length} tokens{source}",
            _parts(model, parts(model, config, shape), counted),
            _bytes(model, inputs, shape, counted[""]),
            _heads(model, shape),
            _long(long_length, long_heads),
        ]
    )


def _parts(model: nn.Module, rows: list[Part], counted: dict[str, int]) -> str:
    """Parameters and FLOPs per part, predicted and counted."""
    lines, done = [], set()
    predicted_params, predicted_flops, known = 0, 0, True
    named = dict(model.named_modules())
    flops_left = counted[""]
    for part in rows:
        own = {id(p): p.numel() for name in part.names for p in named[name].parameters() if id(p) not in done}
        done |= own.keys()
        flops = sum(counted.get(name, 0) for name in part.names)
        flops_left -= flops
        cells = (NO_FORMULA, NO_FORMULA) if part.cost is None else (f"{part.cost.params:,}", f"{part.cost.flops:,}")
        lines.append((part.title, cells[0], f"{sum(own.values()):,}", cells[1], f"{flops:,}"))
        known = known and part.cost is not None
        if part.cost is not None:
            predicted_params, predicted_flops = predicted_params + part.cost.params, predicted_flops + part.cost.flops
    total = sum(p.numel() for p in model.parameters())
    rest = sum(p.numel() for p in model.parameters() if id(p) not in done)
    if rest or flops_left:
        lines.append(("all else", NO_FORMULA, f"{rest:,}", NO_FORMULA, f"{flops_left:,}"))
        known = False
    sums = (f"{predicted_params:,}", f"{predicted_flops:,}") if known else (NO_FORMULA, NO_FORMULA)
    lines.append(("total", sums[0], f"{total:,}", sums[1], f"{counted['']:,}"))
    head = ("", "parameters", "counted", "forward FLOPs", "counted")
    return table(head, lines) + "\n" + paragraph(_HOW + ("" if known else _UNKNOWN))


_HOW = (
    "Left by formula, right as counted: parameters in the model, FLOPs by torch's FlopCounterMode. Only matrix "
    "products count (2 m n k). Attention is counted by definition (as with model.attention.fast=null): on a CPU "
    "torch's counter does not see inside of its fused attention, which computes the same products."
)
_UNKNOWN = f" {NO_FORMULA}: no formula for this part."


def _bytes(model: nn.Module, inputs: measure.Inputs, shape: Shape, forward: int) -> str:
    """The memory of training and of generation, predicted and measured."""
    n_params, n_tensors = sum(p.numel() for p in model.parameters()), len(list(model.parameters()))
    blocks = attention_blocks(model, shape)
    model.train()
    with measure.by_definition(model):
        saved_plain = measure.saved_bytes(model, inputs)
    saved_fast = measure.saved_bytes(model, inputs)
    training = measure.training_flops(model, inputs)
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    state = measure.optimizer_bytes(model)
    model.eval()
    rows = [
        ("weights, float32", "4 a parameter", 4 * n_params, sum(p.nbytes for p in model.parameters())),
        ("gradients", "4 a parameter", 4 * n_params, gradients),
        ("AdamW's state", "8 a parameter, 4 a tensor", 8 * n_params + 4 * n_tensors, state),
        ("attention scores", "4 B H T S a block", _sum(scores_bytes, blocks), measure.score_bytes(model, inputs)),
        ("kept for the backward pass", "attention by definition", None, saved_plain),
        ("kept for the backward pass", "attention as configured", None, saved_fast),
    ]
    if (held := measure.cache_bytes(model, inputs)) is not None:
        own, cross = ([b for b in blocks if b.cached and b.cross == wanted] for wanted in (False, True))
        a_block = "4 G (d + d_v) a block"
        rows.append(("KV cache, per token", a_block, _sum(cache_bytes, own), held[0] // (shape.B * shape.T)))
        if shape.S is not None:
            rows.append(
                ("KV cache, per source token", a_block, _sum(cache_bytes, cross), held[1] // (shape.B * shape.S))
            )
    cells = [(a, b, NO_FORMULA if c is None else f"{c:,}", f"{d:,}") for a, b, c, d in rows]
    text = table(("", "formula", "bytes", "measured"), cells, left=2)
    step = (
        "The backward pass has two products for each of the forward pass, so a training step takes "
        f"3 x {forward:,} = {3 * forward:,} FLOPs; counted {training:,}."
    )
    if training < 3 * forward:
        step += " What needs no gradient, such as a first state of zeros, saves a little."
    return f"{text}\n{paragraph(step)}"


def _sum(formula: Callable[[Sizes], int], blocks: list[Block]) -> int | None:
    """The sum over attention blocks; None where one of them has no sizes, or there are none."""
    known = [b.sizes for b in blocks if b.sizes is not None]
    return sum(map(formula, known)) if blocks and len(known) == len(blocks) else None


def _heads(model: nn.Module, shape: Shape) -> str:
    """What fewer key/value heads would save in the first attention block."""
    known = [b.sizes for b in attention_blocks(model, shape) if b.sizes is not None]
    if not known:
        return "No attention blocks with queries and keys, so no key/value heads to save."
    n = known[0]
    most = replace(n, G=n.H)
    rows = []
    for g in [g for g in range(n.H, 0, -1) if n.H % g == 0]:
        one = replace(n, G=g)
        params, held = projections(one).params, cache_bytes(one)
        rows.append(
            (
                f"{g}" + (" (this model)" if g == n.G else ""),
                f"{params:,}",
                "" if g == n.H else f"{projections(most).params / params:.2f} x fewer",
                f"{held:,}",
                "" if g == n.H else f"{cache_bytes(most) / held:.0f} x fewer",
            )
        )
    head = ("key/value heads", "w_q, w_k, w_v, w_o", "", "cache bytes per token", "")
    what = f"One attention block of width {n.D} with {n.H} query heads, by formula:"
    return f"{what}\n{table(head, rows)}"


def _long(length: int, heads: int) -> str:
    """The memory of the scores of a long row; measured on torch's meta device, which has shapes and no memory."""
    one = Sizes(B=1, T=length, S=length, D=64, H=1, G=1, d=64, d_v=64)
    score = ScaledDot(d_head=64, n_heads=1)
    measured = measure.bytes_on_paper(lambda: score(*(torch.empty(1, 1, length, 64) for _ in "qk")))
    n, all_heads = scores_bytes(one), heads * scores_bytes(one)
    return paragraph(
        f"Scores q.k of one row of {length:,} tokens: {length:,}^2 = {length**2:,} numbers a head, {binary(n)} in "
        f"float32 (measured: {binary(measured)}); {heads} heads: {binary(all_heads)}. The fused attention never has "
        "them all in memory."
    )


def binary(n: int) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n >= 1024**power:
            return f"{n / 1024**power:.4g} {unit}"
    return f"{n} bytes"
