"""The cells of the cache matrix: a small model, a batch of rows, and one full pass of each row without a cache."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Callable, Iterator, Sequence

import parts
import torch
from cover import Cell, Choice, Space
from naive_caches import Renumbered
from refused import refused
from small_models import GROUPS, INSIDE, PRESETS, SIZES, build_model
from torch import Tensor

from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.cache import KVCache
from minitf.models.head import read_out
from minitf.positions import from_real, packed, segment

TOKENS, PROMPT, VOCAB = 14, 9, 65
SOURCES = (6, 3, 1, 0)  # tokens of each row's source in a batch that is padded
ROWS = 4

# how many columns come at once, the last number again and again; "prompt" and then one by one, as generation does
PIECES = {"whole": (99,), "1": (1,), "2": (2,), "3": (3,), "7": (7,), "crossing": (3, 1, 6, 1, 2), "prompt": (-5, 1)}
BATCHES = ("equal", "given", "left", "left+6", "right", "right+6", "packed")

AXES: dict[str, list] = {
    "attention": parts.attentions(),
    "position": parts.nested("model/position"),
    "mask": parts.causal_masks(),
    "cache": parts.cache_kinds(),
    "pieces": list(PIECES),
    "batch": list(BATCHES),
    **{axis: parts.nested(GROUPS[axis]) for axis in INSIDE},
    "sizes": list(SIZES),
    "fast": ["sdpa", "definition"],  # the others do the same on few tokens; the matrix of blocks has them with a cache
    "layers": ["same", "differ", "without"],
    "layer": ["pre_norm", "post_norm"],
    "ffn": ["none", "gelu"],
    "model": list(PRESETS),
    "dtype": [torch.float32, torch.float64],
}


def excluded(a: Choice, b: Choice) -> bool:
    """What is refused, and what three choices together would make so: a window that just fits the mask, smeared."""
    return refused(a, b) or {a, b} == {("cache", "window"), ("projection", "smeared")}


SPACE = Space(AXES, excluded)
# what every cell of the full product names: of one model, and of how it is read
OF_MODEL, OF_READING = ("attention", "position", "mask", "cache"), ("pieces", "batch")
PRODUCT = {axis: AXES[axis] for axis in OF_MODEL}
READINGS = {"pieces": list(PIECES), "batch": ["equal", "left", "left+6", "right", "packed"]}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
# the largest difference that 8 bits may make, as a share of the largest logit: 0.005 in the middle of
# these cells, below 0.04 in 99 of 100, most where unscaled products choose sharply among few values
INT8 = 0.25


def full(**fixed: object) -> Iterator[tuple[Cell, list[Cell]]]:
    """For every model of the product with some choices given: one cell of it, and every cell.

    What neither a model nor a way of reading names is drawn anew for each model.
    """
    rng = random.Random(str(fixed))
    for named in parts.product(**{**PRODUCT, **{axis: [value] for axis, value in fixed.items()}}):
        drawn = SPACE.complete(named, rng)
        if drawn is not None:
            cells = [{**drawn, **reading} for reading in parts.product(**READINGS)]
            yield drawn, [cell for cell in cells if SPACE.allows(cell)]


@functools.cache
def layout(batch: str) -> Tensor | None:
    """Positions (B,N) of the rows: prompts of 9, 5, 1 and no tokens, then as many more; None where all is plain."""
    kind, _, extra = batch.partition("+")
    if kind == "equal":
        return None
    if kind == "given":
        return torch.arange(TOKENS)[None].expand(ROWS, -1)
    if kind == "packed":
        return torch.stack([packed(documents, TOKENS) for documents in ([14], [6, 8], [6, 1, 5], [])])
    place, lengths = torch.arange(PROMPT + int(extra or 0)), torch.tensor([9, 5, 1, 0])[:, None]
    prompt = place >= len(place) - lengths if kind == "left" else place < lengths
    # one row ends early, and one that began with nothing still does
    rest = torch.arange(TOKENS - PROMPT) < torch.tensor([5, 5, 2, 0])[:, None]
    return from_real(torch.cat([prompt, rest], 1))


class Subject:
    """What the cells of one model share: the model, its rows, and what each says when it is read alone, at once."""

    def __init__(self, cell: Cell, make: Callable[[], KVCache]) -> None:
        named = {axis: value for axis, value in cell.items() if axis not in OF_READING}
        torch.default_generator.manual_seed(zlib.crc32(parts.name(named).encode()))
        self.make, self.model = make, build_model(cell)
        self.tokens, self.sources = torch.randint(VOCAB, (ROWS, TOKENS)), torch.randint(VOCAB, (ROWS, SOURCES[0]))
        self.stack = self.model if cell["model"] == "decoder" else self.model.decoder
        self.kind = make()
        self.rounds = cell["cache"].startswith("int8")
        self._alone: dict[tuple, Tensor] = {}

    def caches(self, make: Callable[[], KVCache] | None = None) -> list[KVCache]:
        """New ones, told how much will come."""
        caches = self.model.new_caches(make or self.make)
        for cache in self.own(caches):
            cache.reserve(TOKENS + 8)
        return caches

    def own(self, caches: Sequence[KVCache]) -> Sequence[KVCache]:
        """Those that are not about a source."""
        return caches[: self.stack.n_layers]

    def memory(self, rows: Tensor, lengths: Sequence[int] | None, side: str) -> dict:
        """Encoded sources, padded if they have lengths."""
        if self.stack is self.model:
            return {}
        src, pos = self.sources[rows], None
        if lengths is not None:
            n = torch.tensor(lengths)[rows, None]
            place = torch.arange(src.size(1))
            pos = from_real(place >= src.size(1) - n if side == "left" else place < n)
            padded = torch.randint_like(src, VOCAB)  # what stands in a place without a token must not matter
            for row, source in enumerate(rows.tolist()):
                padded[row, pos[row] >= 0] = self.sources[source, : lengths[source]]
            src = padded
        return {"memory": self.model.encode(src, pos), "memory_pos": pos}

    def read(self, ids: Tensor, pos: Tensor | None, caches: Sequence[KVCache] | None, memory: dict) -> Tensor:
        """Logits (B,T,V), in as many calls as the caches ask for."""
        logits = []
        while ids.size(1):
            n = ids.size(1)
            if caches is not None:
                n = min([n, *(c.chunk_limit for c in self.own(caches) if c.chunk_limit is not None)])
            hidden = self.model.hidden(ids[:, :n], None if pos is None else pos[:, :n], caches=caches, **memory)
            logits.append(read_out(self.model.head, hidden, memory.get("memory"), memory.get("memory_pos")))
            ids, pos = ids[:, n:], None if pos is None else pos[:, n:]
        return torch.cat(logits, 1)

    def alone(self, start: int, end: int, n_source: int, *, rounded: bool) -> Tensor:
        """Logits (B,T,V) of some tokens of every row, read at once, without padding and without a cache.

        A cache that forgets is a mask; one that renumbers has a slow definition; one that rounds is read at once too.
        """
        key = (start, end, n_source, rounded)
        if key not in self._alone:
            memory = {} if self.stack is self.model else {"memory": self.model.encode(self.sources[:, :n_source])}
            ids = self.tokens[:, start:end]
            if rounded:
                self._alone[key] = self.read(ids, None, self.caches(), memory)
            elif self.kind.raw_keys:
                self._alone[key] = self.read(ids, None, self.caches(lambda: Renumbered(*self.kind.keeps)), memory)
            else:
                self._alone[key] = self._full_pass(ids, memory)
        return self._alone[key]

    def _full_pass(self, ids: Tensor, memory: dict) -> Tensor:
        blocks = [layer.attention for layer in self.stack.layers if hasattr(layer.attention, "mask")]
        masks = [block.mask for block in blocks]
        if self.kind.keeps is not None and not self.kind.exact:
            window, n_sink = self.kind.keeps
            for block, mask in zip(blocks, masks, strict=True):
                # the oldest token is only there for the key after it, where keys read the token before them
                block.mask = mask & SlidingWindow(window - block.reads_previous, n_sink)
        try:
            return self.read(ids, None, None, memory)
        finally:
            for block, mask in zip(blocks, masks, strict=True):
                block.mask = mask


@functools.lru_cache(maxsize=2)
def _subject(items: tuple, make: Callable[[], KVCache]) -> Subject:
    return Subject(dict(items), make)


class Case:
    """One cell: a batch of rows, and a way to read them.

    Args:
        cell: a choice of each axis.
        make: another maker of caches than the cell's.
    """

    def __init__(self, cell: Cell, make: Callable[[], KVCache] | None = None) -> None:
        self.cell = cell
        make = make or parts.factory("cache", cell["cache"])
        self.subject = _subject(tuple((axis, v) for axis, v in cell.items() if axis not in OF_READING), make)
        self.keeps = self.subject.kind.keeps
        self.pos = layout(cell["batch"])
        self.side = cell["batch"].partition("+")[0]
        self.lengths = SOURCES if self.side in ("left", "right") else None
        self.n = TOKENS if self.pos is None else self.pos.size(1)
        self.cut = self.n - (TOKENS - PROMPT)
        self.rng = random.Random(parts.name(cell))
        torch.default_generator.manual_seed(self.rng.randrange(2**32))
        self.ids = self.subject.tokens
        self.real = torch.ones(ROWS, self.n, dtype=torch.bool)
        if self.pos is not None:
            self.real = self.pos >= 0
            self.ids = torch.randint(VOCAB, self.pos.shape)
            for row, real in enumerate(self.real):
                self.ids[row, real] = self.subject.tokens[row, : real.sum()]

    def expected(self, *, rounded: bool | None = None) -> Tensor:
        """(B,N,V) logits of every token, each document read alone and at once; NaN where there is no token."""
        rounded = self.subject.rounds if rounded is None else rounded
        out = torch.full((ROWS, self.n, VOCAB), float("nan"), dtype=self.cell["dtype"])
        for row in range(ROWS):
            documents = torch.zeros(self.n, dtype=torch.long) if self.pos is None else segment(self.pos[row])
            n_source, start = SOURCES[0] if self.lengths is None else SOURCES[row], 0
            for document in documents[self.real[row]].unique():
                inside = documents == document
                end = start + int(inside.sum())
                # later tokens change nothing: one pass serves every batch that cuts a row short
                whole = start if self.side == "packed" else TOKENS
                logits = self.subject.alone(start, max(end, whole), n_source, rounded=rounded)
                out[row, inside] = logits[row, : end - start]
                start = end
        return out

    def sizes(self, n: int) -> list[int]:
        """Pieces of n columns as the cell says."""
        sizes, pattern = [], PIECES[self.cell["pieces"]]
        while sum(sizes) < n:
            size = pattern[min(len(sizes), len(pattern) - 1)]
            sizes.append(min(size if size > 0 else max(1, n + size), n - sum(sizes)))
        return sizes

    def go(
        self, caches: Sequence[KVCache], start: int, end: int, rows: Sequence[int] = range(ROWS), watch=None
    ) -> Tensor:
        """Logits (B,T,V) of some columns in pieces; `watch` is called after each."""
        at, out = torch.tensor(rows), []
        torch.default_generator.manual_seed(0)
        memory = self.subject.memory(at, self.lengths, self.side)
        for size in self.sizes(end - start):
            stop = start + size
            pos = None if self.pos is None else self.pos[at, start:stop]
            out.append(self.subject.read(self.ids[at, start:stop], pos, caches, memory))
            start = stop
            if watch is not None:
                watch(start)
        return torch.cat(out, 1)

    def astray(self, caches: Sequence[KVCache], n: int) -> None:
        """Tokens that do not belong there, real ones in every row."""
        ids, pos = torch.randint(VOCAB, (ROWS, n)), None
        if self.pos is not None:
            pos = self.pos[:, : self.cut].amax(1, keepdim=True) + 1 + torch.arange(n)
        at = torch.arange(ROWS)
        torch.default_generator.manual_seed(0)
        self.subject.read(ids, pos, caches, self.subject.memory(at, self.lengths, self.side))

    def close(self, ours: Tensor, expected: Tensor, what: str, *, share: float | None = None) -> None:
        """Raise AssertionError unless logits agree wherever there is a token; they are finite everywhere."""
        assert ours.shape == expected.shape, f"{what}: {tuple(ours.shape)} instead of {tuple(expected.shape)}"
        assert ours.isfinite().all(), f"{what}: not finite"
        known = expected.isfinite()
        largest = expected[known].abs().max().item() if known.any() else 1.0
        if share is None:
            # rounding to 8 bits turns the last bit of a float32 into a step; in float64 that does not happen
            share = TOLERANCE[self.cell["dtype"]] if not self._steps() else INT8
        bound = share * max(1.0, largest)
        differs = (ours - expected).abs().where(known, 0.0).amax(-1)
        worst = differs.max().item()
        at = divmod(differs.argmax().item(), differs.size(1))
        assert worst <= bound, f"{what} differs by {worst:.3g} at (row, column) {at}, allowed {bound:.3g}"

    def _steps(self) -> bool:
        return self.subject.rounds and self.cell["dtype"] == torch.float32
