"""What every cache takes: bytes by formula, from the sizes alone, beside those of the tensors that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from minitf.bench.decode_contenders import LlamaShape, cache_config, minitf_config
from minitf.cache import KVCache
from minitf.config import build, group_options

FLOAT = 4  # bytes
Vectors = list[tuple[int, int]]  # how many of which width
MEMORY_LEGEND = """\
  predicted: by formula, from the sizes alone; n_bytes: what the caches say; storages: the tensors found in them
  positions: bytes of the positions that the caches hold beside that, 8 for each, counted in no other column
  bytes per token: growth from the last length but one to the last; 0: all memory is made at once"""


@dataclass(frozen=True)
class CacheRow:
    """Bytes of the caches of all layers, for one row of tokens, at several lengths.

    Attributes:
        name: attention and cache kind.
        lengths: numbers of tokens.
        predicted: by formula; None: there is none for this option.
        told: what the caches say about their entries.
        found: what a walk through the caches finds, positions not counted.
        positions: the positions that it finds, 8 bytes each.
    """

    name: str
    lengths: list[int]
    predicted: list[int] | None
    told: list[int]
    found: list[int]
    positions: list[int]


def memory_rows(shape: LlamaShape, lengths: Sequence[int]) -> list[CacheRow]:
    """Every option of model/attention with a dynamic cache, and every other cache kind with grouped heads (gqa)."""
    chosen = [(attention, "dynamic") for attention in group_options("model/attention") if attention != "none"]
    chosen += [("gqa", cache) for cache in group_options("cache") if cache not in ("none", "dynamic")]
    return [_row(shape, attention, cache, list(lengths)) for attention, cache in chosen]


def _row(shape: LlamaShape, attention: str, cache: str, lengths: list[int]) -> CacheRow:
    model_cfg, cache_cfg = minitf_config(shape, attention), cache_config(cache)
    vectors, count = vectors_per_token(model_cfg, attention), BYTES.get(cache)
    predicted = None
    if vectors is not None and count is not None:
        predicted = [shape.n_layers * count(vectors, n, cache_cfg) for n in lengths]
    model, make = build(model_cfg).eval(), build(cache_cfg)
    measured = [_measure(model, make, n, shape.vocab_size) for n in lengths]
    told, found, positions = ([one[i] for one in measured] for i in range(3))
    return CacheRow(f"{attention}, {cache}", lengths, predicted, told, found, positions)


def vectors_per_token(model: DictConfig, attention: str) -> Vectors | None:
    """What one layer keeps of one token; None: an option without a formula."""
    a = model.attention
    if attention == "mla":  # one rotary key and one latent for all heads
        return [(1, a.d_rotary), (1, a.d_latent)]
    heads = {"mha": a.get("n_heads"), "gqa": a.get("n_kv_heads"), "mqa": 1}.get(attention)
    if heads is None:
        return None
    width = a.d_head or model.d_model // a.n_heads
    return [(heads, width), (heads, a.d_value or width)]


def all_of(vectors: Vectors, n: int, cache: DictConfig) -> int:
    """Bytes that one layer takes for n tokens if it keeps every number."""
    return n * sum(count * width for count, width in vectors) * FLOAT


def last_of(vectors: Vectors, n: int, cache: DictConfig) -> int:
    """The same if it has places for so many tokens, whatever n is."""
    return all_of(vectors, cache.window + cache.n_sink + cache.spare, cache)


def bytes_of(vectors: Vectors, n: int, cache: DictConfig) -> int:
    """The same for a byte a number, and a float a vector."""
    return n * sum(count * (width + FLOAT) for count, width in vectors)


BYTES: dict[str, Callable[[Vectors, int, DictConfig], int]] = {
    "dynamic": all_of,
    "static": all_of,
    "window": last_of,
    "streaming": last_of,
    "int8": bytes_of,
}


@torch.no_grad()
def _measure(model: nn.Module, make: Callable[[], KVCache], n: int, vocab_size: int) -> tuple[int, int, int]:
    """Bytes for n tokens, of which the last one came alone: told, found, of positions."""
    caches = model.new_caches(make)
    ids = torch.randint(vocab_size, (1, n), generator=torch.Generator().manual_seed(0))
    for cache in caches:
        cache.reserve(n)
    start = 0
    while start < n:
        limit = caches[0].chunk_limit
        end = min(max(start + 1, n - 1), n if limit is None else start + limit)
        model.step(ids[:, start:end], None, caches)
        start = end
    there = storages(caches)
    positions = sum(size for size, dtype in there if dtype == torch.int64)
    return sum(c.n_bytes for c in caches), sum(size for size, _ in there) - positions, positions


def storages(root: object) -> list[tuple[int, torch.dtype]]:
    """Bytes and dtype of each storage that can be reached from an object: its attributes, and what containers hold."""
    found: dict[int, tuple[int, torch.dtype]] = {}
    seen: dict[int, object] = {}  # the objects themselves, so that no id is used again
    todo = [root]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen[id(one)] = one
        if isinstance(one, Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = (storage.nbytes(), one.dtype)
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple | set):
            todo += one
        elif hasattr(one, "__dict__"):
            todo += vars(one).values()
    return list(found.values())


def memory_table(rows: Sequence[CacheRow]) -> str:
    """The growth per token between the last two lengths, and the bytes at the last one."""
    n = rows[0].lengths[-1]
    head = f"{'attention, cache':<20} {'bytes per token':^32} {f'bytes at {n} tokens':^41} {'positions':>10}\n"
    columns = ("predicted", "n_bytes", "storages")
    head += f"{'':<20} " + "".join(f"{c:>10} " for c in columns) + "".join(f"{c:>13} " for c in columns)
    return "\n".join([head, *(_line(row) for row in rows), MEMORY_LEGEND])


def _line(row: CacheRow) -> str:
    sides = (row.predicted, row.told, row.found)
    growth = "".join(f"{'no formula' if s is None else _per_token(row.lengths, s):>10} " for s in sides)
    totals = "".join(f"{'no formula' if s is None else f'{s[-1]:,}':>13} " for s in sides)
    return f"{row.name:<20} {growth}{totals}{row.positions[-1]:>10,}"


def _per_token(lengths: Sequence[int], sizes: Sequence[int]) -> str:
    return f"{(sizes[-1] - sizes[-2]) / (lengths[-1] - lengths[-2]):,.0f}"
