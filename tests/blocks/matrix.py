"""The cells of the property matrix, and the small block and data of each."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, cached_property
from unittest import mock

import parts
import torch
from cover import Cell, Space
from refused import refused
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from minitf.blocks.attend import band, dense, flex
from minitf.blocks.mask import Mask
from minitf.blocks.score.factor import HeadFactor
from minitf.positions import packed
from minitf.tap import Tap

LENGTH, D_MODEL, HEADS = 7, 16, 4
GROUPS = {
    "attention": "model/attention",
    "score": "model/attention/score",
    "normalize": "model/attention/normalize",
    "projection": "model/attention/projection",
    "qk_norm": "model/attention/qk_norm",
    "position": "model/position",
    "mask": "model/mask",
}
# other values of a part that is there already: in the full product they would show nothing new
ALIASES = {"mask": ["document"], "projection": ["free_bias"]}
# what every cell of the full product names; the other axes are drawn
FULL = ("score", "normalize", "projection", "position", "mask", "attention", "dtype")
SIZES = {"d_model/H": {}, "d_head=6": {"d_head": 6}, "d_head=5": {"d_head": 5}, "d_value=6": {"d_value": 6}}
FAST = parts.options("model/attention/fast")
# what lets the ways for long rows work on short ones, and FlexAttention without its compiler
LONG = (
    (band, {"_ROWS": 2, "_ROWS_BACKWARD": 1, "_ALIGN": 4}),
    (flex, {"MIN_LENGTH": 2, "MAX_SHARE": 1.0, "BLOCK": 128, "kernel": lambda: flex_attention}),
)


AXES: dict[str, list] = {
    **{axis: parts.nested(group) for axis, group in GROUPS.items() if axis != "attention"},
    "attention": parts.attentions(),
    "sizes": list(SIZES),
    "bias": [False, True],
    "dropout": [0.0, 0.3],  # which must do nothing in evaluation mode
    "dtype": [torch.float32, torch.float64, torch.bfloat16],
    "padding": ["none", "left", "right", "packed"],
    "pieces": [(4, 1, 2), (1, 6), (6, 1)],
    "path": [*FAST, "definition"],  # which of the two ways shows the laws that are not about both
}
# float32 and bfloat16: some units in the last place (6e-8, 4e-3) of sums over 7 keys and 16 features
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 6e-2}


SPACE = Space(AXES, refused)
PRODUCT = {axis: [value for value in AXES[axis] if value not in ALIASES.get(axis, [])] for axis in FULL}


def full(**fixed: object) -> Iterator[Cell]:
    """Every cell of the product of FULL with some choices given; what FULL does not name is drawn anew for each."""
    rng = random.Random(str(fixed))
    for named in parts.product(**{**PRODUCT, **{axis: [value] for axis, value in fixed.items()}}):
        cell = SPACE.complete(named, rng)
        if cell is not None:
            yield cell


@cache
def _mask(name: str) -> tuple[Mask, bool]:
    mask = parts.factory("model/mask", name)
    return mask, mask.sees_future


def _block(cell: Cell, mask: Mask) -> torch.nn.Module:
    chosen = {axis: parts.factory(GROUPS[axis], cell[axis]) for axis in ("score", "normalize", "projection", "qk_norm")}
    if cell["bias"] and "bias" in chosen["projection"].keywords:
        chosen["projection"] = functools.partial(chosen["projection"], bias=True)
    fast = short(parts.factory("model/attention/fast", FAST[0] if cell["path"] == "definition" else cell["path"]))
    make = parts.factory("model/attention", cell["attention"])
    how = {**chosen, **SIZES[cell["sizes"]], "dropout": cell["dropout"], "fast": fast}
    return make(d_model=D_MODEL, mask=mask, **{key: part for key, part in how.items() if key in make.keywords})


@cache
def short(fast: Callable) -> Callable:
    """A fast path that does its work on short rows too."""

    def attend(*args: Tensor, **where: object) -> Tensor:
        with ExitStack() as patches:
            for module, values in LONG:
                patches.enter_context(mock.patch.multiple(module, **values))
            return fast(*args, **where)

    return attend


@cache
def positions(padding: str) -> Tensor | None:
    """A full row, a broken one, one of padding only, and copies of the broken one; None where nothing is padded."""
    if padding == "none":
        return None
    if padding == "packed":
        rows = torch.stack([packed(documents, LENGTH) for documents in ([LENGTH], [3, 2], [])])
    else:
        rows = parts.padded([LENGTH, 4, 0], padding)
    return torch.cat([rows, rows[1:2].expand(LENGTH, -1)])


class Case:
    """One cell: its block and position scheme with random parameters, its tokens and their positions.

    Three rows are a batch. Behind them stand `LENGTH` copies of the second row, each to be asked about another token:
    so one pass, which costs hardly more, also shows what every token reads.
    """

    def __init__(self, cell: Cell, seed: int | None = None) -> None:
        # not torch.manual_seed, which takes longer than a pass of the block
        torch.default_generator.manual_seed(zlib.crc32(parts.name(cell).encode()) if seed is None else seed)
        self.cell = cell
        self.dtype, self.tolerance = cell["dtype"], TOLERANCE[cell["dtype"]]
        self.mask, self.sees_future = _mask(cell["mask"])
        block = _block(cell, self.mask)
        make = parts.factory("model/position", cell["position"])
        sizes = {"d_model": D_MODEL, "d_head": block.d_rotary, "n_heads": HEADS, "max_len": 32}
        self.scheme, self.block = make(**sizes, causal=not self.sees_future), block
        for module in (self.scheme, block):
            parts.randomise(module, 4 / D_MODEL)  # scores of about 1: neither even nor one-hot
            for factor in (part for part in module.modules() if isinstance(part, HeadFactor)):
                factor.log.data.mul_(0.5)  # exp(2.6) makes scores of 60: too coarse in bfloat16
            module.to(self.dtype).eval()
        self.fast, self.block.fast = block.fast, block.fast if cell["path"] != "definition" else None
        self.pos = positions(cell["padding"])
        x = torch.randn(3, LENGTH, D_MODEL, dtype=self.dtype)
        self.x = torch.cat([x, x[1:2].expand(LENGTH, -1, -1)])
        self.question = torch.randn(D_MODEL, dtype=self.dtype)
        self.reads_previous = block.projection.reads_previous

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Of the block and of its position scheme."""
        return dict([*self.block.named_parameters(), *self.scheme.named_parameters("position")])

    def read(self, x: Tensor, pos: Tensor | None = None, cache: object = None) -> Tensor:
        """The block's output; the scheme's share in the embedding belongs to it here."""
        where = torch.arange(x.size(1))[None] + (0 if cache is None else cache.n_seen) if pos is None else pos
        return parts.attend(self.block, self.scheme.embed(x, where), pos, cache, self.scheme)

    def read_memory(self, x: Tensor, memory: Tensor, memory_pos: Tensor | None = None) -> Tensor:
        """Cross-attention."""
        pos = torch.arange(x.size(1))[None]
        return self.block(x, pos=pos, plain=True, position=self.scheme, memory=memory, memory_pos=memory_pos)

    def with_gradient(self, fast: Callable | None) -> dict[str, Tensor]:
        """Output and gradients, with this fast path or by definition.

        "reach" (T, S, D) is the gradient of each output of the copied row with respect to each token.
        """
        x, parameters = self.x.clone().requires_grad_(), self.parameters
        kept, self.block.fast = self.block.fast, fast
        with torch.enable_grad():
            out = self.read(x, self.pos)
            loss = (out[:3].double().square() * torch.linspace(-1, 1, D_MODEL)).sum()
            loss = loss + (out[3:].diagonal().T * self.question).sum()
        self.block.fast = kept
        # a parameter that this use of a part leaves out has no gradient; test_configs asks that some use has
        grads = torch.autograd.grad(loss, [x, *parameters.values()], allow_unused=True)
        found = {"output": out[:3].detach(), "copies": out[3:].detach(), "x": grads[0][:3], "reach": grads[0][3:]}
        named = zip(parameters, grads[1:], strict=True)
        return {**found, **{name: grad for name, grad in named if grad is not None}}

    @cached_property
    def defined(self) -> dict[str, Tensor]:
        """Output, gradients and weights by definition."""
        with Tap(self.block, at=["weights"]) as tap:
            found = self.with_gradient(None)
        return {**found, "weights": tap["weights"]}

    @cached_property
    def by_fast(self) -> dict[str, Tensor]:
        """Output and gradients by the fast path."""
        return self.with_gradient(self.fast)

    @property
    def by_path(self) -> dict[str, Tensor]:
        """Output and gradients by the path of this cell."""
        return self.defined if self.block.fast is None else self.by_fast

    @property
    def output(self) -> Tensor:
        """(3, T, D) by the path of this cell."""
        return self.by_path["output"]

    @cached_property
    def visible(self) -> Tensor:
        """(B or 1, T, S) which key each query may read."""
        pos = torch.arange(LENGTH)[None] if self.pos is None else self.pos
        return dense(self.mask, pos, pos)[:, 0]

    @property
    def real(self) -> Tensor:
        """(3, T, 1) where a token stands."""
        return torch.ones(3, LENGTH, 1, dtype=torch.bool) if self.pos is None else (self.pos[:3] >= 0)[..., None]

    def close(self, ours: Tensor, expected: Tensor, what: str, *, factor: float = 1.0, size: float = 0.0) -> None:
        """Raise AssertionError unless two tensors agree within the bound of this cell's dtype.

        Args:
            factor: multiplies the bound; 2 where both sides are rounded.
            size: of the terms that were added up; by default that of the result.
        """
        bound = factor * self.tolerance * max(1.0, size or expected.abs().max().item())
        worst = (ours - expected).abs().max().item()
        assert worst <= bound, f"{what} differs by {worst:.3g}, allowed {bound:.3g}"
