"""The page about heads: its maps packed, its curves drawn, and kept inside its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from minitf.errors import ConfigError
from minitf.report.curves import picture
from minitf.report.heads_data import Attention, Example, Head, HeadsPage, Snapshot
from minitf.report.pack import is_causal, pack, quantized
from minitf.report.page import KINDS, MB, write_page
from minitf.report.text import token, translator

BASE64 = 4 / 3
FRAME = 250_000  # bytes of a page that are neither maps nor rows: scripts, strings, tables
MOVIE_SHARE = 0.5  # of the room for maps, at most, goes to the maps of earlier steps
TOP_ROWS = 10


def write_heads_page(path: str | Path, page: HeadsPage, lang: str = "en") -> int:
    """Write heads.html: maps of every head with its name, its ablation effect and its training.

    What is too much for the budget of such a page is left out, first maps of the training, then examples from the
    last on, and the page says so.

    Args:
        path: the HTML file.
        page: what it shows.
        lang: "en" or "zh".

    Returns:
        bytes of the file.

    Raises:
        ConfigError: one example alone is too large, or an unknown language.
        ValueError: weights outside 0..1, or a weight where the mask is closed.
        OSError: the file cannot be written.
    """
    tr = translator(lang)
    page, left_out = fitting(page, tr)
    made = _Arrays()
    data = {
        "layers": [{"kind": g.kind, "layer": g.layer, "heads": list(g.heads)} for g in page.layers],
        "heads": _heads(page, made),
        "effect_of": page.effect_of,
        "examples": [_example(example, i, made) for i, example in enumerate(page.examples)],
        "snapshots": [_snapshot(snapshot, i, page.examples[0], made) for i, snapshot in enumerate(page.snapshots)],
        "symbols": list(made.symbols),
    }
    view = {
        "command": page.command,
        "question": page.question,
        "notes": [*left_out, *page.notes],
        "health": [
            {"name": name, "kind": kind, "picture": picture({f"L{i}": points for i, points in layers.items()})}
            for (name, kind), layers in ((_measure_and_kind(label), layers) for label, layers in page.health.items())
        ],
        "over_time": _over_time(page),
        "metrics": list(dict.fromkeys(name for head in page.heads for name in head.metrics)),
    }
    return write_page(path, "heads", page.title, data, made.arrays, lang, view)


def fitting(page: HeadsPage, tr: Any, budget: int = KINDS["heads"].budget) -> tuple[HeadsPage, list[str]]:
    """The page without what does not fit, and the sentences that say what was left out.

    Args:
        page: all of it.
        tr: a translator.
        budget: bytes of the file.

    Raises:
        ConfigError: the first example alone is above the budget.
    """
    left_out = []
    rows = sum(7 * len(row.tokens) * BASE64 for head in page.heads for row in head.top_rows[:TOP_ROWS])
    room = budget - FRAME - rows
    sizes = [sum(map(_size, example.attention)) for example in page.examples]
    if sizes[0] > room:
        shape = ", ".join(f"{len(a.queries)} x {len(a.keys)} tokens" for a in page.examples[0].attention)
        raise ConfigError(
            f"the maps of one example ({len(page.heads)} heads, {shape}) take {sizes[0] / MB:.1f} MB; a page has "
            f"room for {max(room, 0) / MB:.1f} MB of them: fewer heads (heads=...) or shorter examples (max_tokens=...)"
        )
    kept = [i for i, s in enumerate(page.snapshots) if s.weights]
    n_maps = min(len(kept), int(min(room - sizes[0], room * MOVIE_SHARE) // max(sizes[0], 1)))
    if n_maps < len(kept):
        places = np.linspace(0, len(kept) - 1, n_maps).round().astype(int) if n_maps > 1 else []
        chosen = {kept[i] for i in places}
        snapshots = tuple(s if i in chosen else replace(s, weights={}) for i, s in enumerate(page.snapshots))
        page = replace(page, snapshots=snapshots)
        left_out.append(tr("left.movie", kept=len(chosen), all=len(kept)))
        n_maps = len(chosen)
    room -= n_maps * sizes[0]
    n = len(sizes)
    while sum(sizes[:n]) > room:
        n -= 1
    if n < len(sizes):
        names = ", ".join(example.label for example in page.examples[n:])
        left_out.append(tr("left.examples", names=names, budget=f"{budget / MB:.0f}"))
    return replace(page, examples=page.examples[:n]), left_out


@dataclass
class _Arrays:
    """Arrays of the page, and the one list of tokens that its rows share."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)

    def token(self, text: str) -> int:
        return self.symbols.setdefault(token(text), len(self.symbols))


def _size(attention: Attention) -> float:
    mask = attention.mask()
    cells = int(mask[0].sum()) if is_causal(mask) else mask[0].size
    bits = 0 if is_causal(mask) or mask.all() else mask.size / 8
    return BASE64 * (2 * cells * sum(w.shape[0] for w in attention.weights) + bits)


def _example(example: Example, i: int, made: _Arrays) -> dict[str, Any]:
    maps = {a.kind: _maps(a, a.weights, f"example{i}-{a.kind}", made) for a in example.attention}
    return {"label": example.label, "maps": maps}


def _maps(a: Attention, weights: Sequence[Any], name: str, made: _Arrays) -> dict[str, Any]:
    mask = a.mask()
    triangle, everything = is_causal(mask), bool(mask.all())
    made.arrays[name] = pack(weights, mask)
    if not triangle and not everything:
        made.arrays[f"{name}-mask"] = np.packbits(mask.reshape(-1))
    return {
        "queries": [token(t) for t in a.queries],
        "keys": [token(t) for t in a.keys],
        "array": name,
        "causal": triangle,
        "mask": None if triangle or everything else f"{name}-mask",
        "mask_layers": len(mask),
    }


def _snapshot(snapshot: Snapshot, i: int, first: Example, made: _Arrays) -> dict[str, Any]:
    maps = {}
    for a in first.attention:
        if a.kind in snapshot.weights:
            name = f"step{i}-{a.kind}"
            made.arrays[name] = pack(snapshot.weights[a.kind], a.mask())
            maps[a.kind] = name
    return {"step": snapshot.step, "maps": maps}


def _heads(page: HeadsPage, made: _Arrays) -> list[dict[str, Any]]:
    """Heads in the order of the layers."""
    found = {(h.kind, h.layer, h.head): h for h in page.heads}
    activity: list[np.ndarray] = []
    tokens: list[int] = []
    rows = []
    for site in page.sites():
        head = found[site]
        rows.append(
            {
                "kind": head.kind,
                "layer": head.layer,
                "head": head.head,
                "name": _name(head, len(page.kinds()) > 1),
                "roles": _roles(head),
                "effect": _float(head.effect),
                "controls": sorted(map(float, head.controls)),
                "metrics": {name: _float(value) for name, value in head.metrics.items()},
                "rows": [],
            }
        )
        for row in head.top_rows[:TOP_ROWS]:
            rows[-1]["rows"].append({"start": len(tokens), "length": len(row.tokens), "label": row.label})
            tokens += [made.token(t) for t in row.tokens]
            activity.append(quantized(row.activity).reshape(len(row.tokens)))
    if tokens:
        made.arrays["rows-tokens"] = np.array(tokens, dtype=np.int32)
        made.arrays["rows-activity"] = np.concatenate(activity)
    return rows


def _name(head: Head, with_kind: bool) -> str:
    place = f"{head.layer}.{head.head}"
    return f"{head.kind} {place}" if with_kind else place


def _roles(head: Head) -> list[dict[str, Any]]:
    """Those that name the head first, as they were given; the others by score."""
    named = [role for role in head.roles if role.named]
    roles = [*named, *sorted((role for role in head.roles if not role.named), key=lambda role: -role.score)]
    return [
        {
            "role": r.role,
            "score": _float(r.score),
            "null": _float(r.null),
            "baseline": _float(r.baseline),
            "named": r.named,
        }
        for r in roles
    ]


def _measure_and_kind(label: str) -> tuple[str, str]:
    """("token_cosine", "encoder") of "token_cosine (encoder)"; no kind where there is only one."""
    name, _, kind = label.rstrip(")").rpartition(" (")
    return (name, kind) if name else (label, "")


def _over_time(page: HeadsPage) -> list[dict[str, Any]]:
    """A picture for each role whose scores are known at two steps or more: a line for each head."""
    roles = dict.fromkeys(role for snapshot in page.snapshots for role in snapshot.scores)
    with_kind = len(page.kinds()) > 1
    found = {(h.kind, h.layer, h.head): h for h in page.heads}
    names = [_name(found[site], with_kind) for site in page.sites()]
    drawn = []
    for role in roles:
        at = [(s.step, s.scores[role]) for s in page.snapshots if role in s.scores]
        series: Mapping[str, list[tuple[float, float]]] = {
            name: [(step, nan_if_none(scores[i])) for step, scores in at] for i, name in enumerate(names)
        }
        drawn.append({"name": role, "picture": picture(series)})
    return drawn


def nan_if_none(value: float | None) -> float:
    """A number for a curve, where `nan` leaves a gap."""
    return float("nan") if value is None else float(value)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
