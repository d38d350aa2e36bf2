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
from minitf.demo.cost import Cost, Sizes, cache_bytes, scores_bytes
from minitf.demo.cost_attention import can_share_heads, matrix_shapes, of_projection
from minitf.demo.part import Part, Shape
from minitf.demo.parts import Block, attention_blocks, parts
from minitf.demo.record import batch_for, build_model
from minitf.demo.text import paragraph, table
from minitf.models.recurrent import Recurrent

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
    rows = parts(model, config, shape)
    trained = measure.training_flops(model.train(), inputs)  # leaves gradients, which take memory as well
    return "\n\n".join(
        [
            f"{type(model).__name__}, a pass over {batch} rows of {length} tokens{source}",
            _parts(model, rows, counted),
            _bytes(model, inputs, shape),
            _training(rows, trained),
            _heads(model, shape),
            _long(long_length, long_heads),
        ]
    )


def _parts(model: nn.Module, rows: list[Part], counted: dict[str, int]) -> str:
    """Parameters and FLOPs per part, predicted and counted."""
    named, done, params = dict(model.named_modules()), set(), []
    for part in rows:
        own = {id(p): p.numel() for name in part.names for p in named[name].parameters() if id(p) not in done}
        done |= own.keys()
        params.append(sum(own.values()))
    flops = [sum(counted.get(name, 0) for name in part.names) for part in rows]
    rest_params = sum(p.numel() for p in model.parameters() if id(p) not in done)
    rest_flops = counted[""] - sum(flops)
    for i, part in enumerate(rows):
        if part.with_rest:
            flops[i], rest_flops = flops[i] + rest_flops, 0
    lines = []
    for part, n, done_flops in zip(rows, params, flops, strict=True):
        cells = (NO_FORMULA, NO_FORMULA) if part.cost is None else (f"{part.cost.params:,}", f"{part.cost.flops:,}")
        lines.append((part.title, cells[0], f"{n:,}", cells[1], f"{done_flops:,}"))
    if rest_params or rest_flops:
        lines.append(("all else", NO_FORMULA, f"{rest_params:,}", NO_FORMULA, f"{rest_flops:,}"))
    total = _total(rows)
    known = total is not None and not (rest_params or rest_flops)
    sums = (f"{total.params:,}", f"{total.flops:,}") if known else (NO_FORMULA, NO_FORMULA)
    n_params = sum(p.numel() for p in model.parameters())
    lines.append(("total", sums[0], f"{n_params:,}", sums[1], f"{counted['']:,}"))
    head = ("", "parameters", "counted", "forward FLOPs", "counted")
    return table(head, lines) + "\n" + paragraph(_HOW + ("" if known else _UNKNOWN))


def _total(rows: list[Part]) -> Cost | None:
    """What all parts cost; None where one of them has no formula."""
    known = [part.cost for part in rows if part.cost is not None]
    return sum(known, Cost()) if len(known) == len(rows) else None


_HOW = (
    "Left by formula, right as counted: parameters in the model, FLOPs by torch's FlopCounterMode. Only matrix "
    "products count (2 m n k). What is done number by number does not: norms, softmax, activations (with the tanh of "
    "additive scores), masks, rotations, residual sums. Attention is counted by definition (as with "
    "model.attention.fast=null): on a CPU torch's counter does not see inside of its fused attention, which computes "
    "the same products."
)
_UNKNOWN = f" {NO_FORMULA}: no formula for this part."


def _bytes(model: nn.Module, inputs: measure.Inputs, shape: Shape) -> str:
    """The memory of training and of generation, predicted and measured."""
    n_params, n_tensors = sum(p.numel() for p in model.parameters()), len(list(model.parameters()))
    blocks = attention_blocks(model, shape)
    model.train()
    with measure.by_definition(model):
        saved_plain = measure.saved_bytes(model, inputs)
    saved_fast = measure.saved_bytes(model, inputs)
    gradients, state = measure.training_bytes(model)
    model.eval()
    rows = [
        ("weights, float32", "4 a parameter", 4 * n_params, sum(p.nbytes for p in model.parameters())),
        ("gradients", "4 a parameter", 4 * n_params, gradients),
        ("AdamW's state", "8 a parameter, 4 a tensor", 8 * n_params + 4 * n_tensors, state),
        ("attention scores", "4 B H T S a block", _sum(scores_bytes, blocks), measure.score_bytes(model, inputs)),
    ]
    if (held := measure.cache_bytes(model, inputs)) is not None:
        rows += _caches(model, blocks, shape, held)
    cells = [(a, b, NO_FORMULA if c is None else f"{c:,}", f"{d:,}") for a, b, c, d in rows]
    text = table(("", "formula", "bytes", "measured"), cells, left=2)
    kept = (
        f"Kept between forward and backward pass, measured only, as torch decides what that is: {saved_plain:,} bytes "
        f"with attention by definition, {saved_fast:,} with attention as configured."
    )
    return f"{text}\n{paragraph(kept)}"


def _caches(
    model: nn.Module, blocks: list[Block], shape: Shape, held: tuple[int, int]
) -> list[tuple[str, str, int | None, int]]:
    """What the caches of the target and of the source hold, by formula and as measured."""
    if isinstance(model, Recurrent):
        width = model.embedding.embedding_dim * 4
        rows = [("decoder's state, per row", "4 D, however long", width, held[0] // shape.B)]
        if model.keeps_keys:
            rows.append(("keys, per source token", "4 D", width, held[1] // (shape.B * shape.S)))
        return rows
    own, cross = ([b for b in blocks if b.cached and b.cross == wanted] for wanted in (False, True))
    rows = [("KV cache, per token", _kept(own), _sum(cache_bytes, own), held[0] // (shape.B * shape.T))]
    if shape.S is not None:
        measured = held[1] // (shape.B * shape.S)
        rows.append(("KV cache, per source token", _kept(cross), _sum(cache_bytes, cross), measured))
    return rows


def _kept(blocks: list[Block]) -> str:
    """What attention blocks keep of a token, in letters."""
    latent = [b.sizes.kept is not None for b in blocks if b.sizes is not None]
    ways = [*(["G (d + d_v)"] if not all(latent) or not latent else []), *(["(c + r)"] if any(latent) else [])]
    return f"4 {' or 4 '.join(ways)} a block"


def _training(rows: list[Part], counted: int) -> str:
    """FLOPs of a training step, predicted and counted."""
    total = _total(rows)
    if total is None:
        return paragraph(f"A training step takes {counted:,} FLOPs as counted; a part has no formula.")
    step = (
        "The backward pass has two products for each of the forward pass, so a training step takes "
        f"3 x {total.flops:,} = {3 * total.flops:,} FLOPs"
    )
    if total.spared:
        step += f", less {total.spared:,} for gradients of constants (a first state of zeros, a singular vector)"
    return paragraph(f"{step}; predicted {total.training:,}, counted {counted:,}.")


def _sum(formula: Callable[[Sizes], int], blocks: list[Block]) -> int | None:
    """The sum over attention blocks; None where one of them has no sizes."""
    known = [b.sizes for b in blocks if b.sizes is not None]
    return sum(map(formula, known)) if len(known) == len(blocks) else None


def _heads(model: nn.Module, shape: Shape) -> str:
    """What fewer key/value heads would save in the first attention block."""
    known = [b for b in attention_blocks(model, shape) if b.sizes is not None and b.projection is not None]
    if not known:
        return "No attention with key/value heads of its own, so none to save."
    n, projection = known[0].sizes, known[0].projection
    if n.kept is not None:
        whole, held = cache_bytes(replace(n, kept=None)), cache_bytes(n)
        return paragraph(
            f"One attention block of width {n.D} with {n.H} heads keeps a latent and one rotary key of each token: "
            f"{held:,} bytes. Their keys and values would take {whole:,} bytes, {whole / held:.2f} x as many."
        )
    most, rows = replace(n, G=n.H), []
    possible = [g for g in range(n.H, 0, -1) if n.H % g == 0 and (g == n.H or can_share_heads(projection))]
    for g in possible:
        one = replace(n, G=g)
        params, held = of_projection(projection, one).params, cache_bytes(one)
        rows.append(
            (
                f"{g}" + (" (this model)" if g == n.G else ""),
                f"{params:,}",
                "" if g == n.H else f"{of_projection(projection, most).params / params:.2f} x fewer",
                f"{held:,}",
                "" if g == n.H else f"{cache_bytes(most) / held:.0f} x fewer",
            )
        )
    names = ", ".join(matrix_shapes(projection, n)) or "no matrices"
    head = ("key/value heads", names, "", "cache bytes per token", "")
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
