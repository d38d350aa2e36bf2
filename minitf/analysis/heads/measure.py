"""Everything that is measured of the heads of one model, in one pass over the batches, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from minitf.analysis.attention_rows import SKIPPED
from minitf.analysis.capture import MAX_BYTES, Captured, capture
from minitf.analysis.forward import Batch, n_rows, positions
from minitf.analysis.heads import diversity, patterns, roles, sink
from minitf.analysis.heads.alignment import alignment_error
from minitf.analysis.heads.average import Average
from minitf.analysis.heads.copying import copying
from minitf.analysis.heads.offsets import Offsets, offsets
from minitf.analysis.heads.roles import Asked, OffsetCounts, RoleScore
from minitf.analysis.heads.rows import base_columns, counted, first_of_document
from minitf.analysis.heads.shuffled import Shuffled, shuffled, shuffled_ids
from minitf.analysis.sites import Site, sites
from minitf.errors import DataError
from minitf.positions import offset

MASS, ACCURACY = "mass:", "accuracy:"  # before the name of a role
NO_SCORES = ("best_offset", "steady_offset")  # numbers of which none is better than another
LAYER = ("js", "effective_heads", "cka", "sink_share")  # of the heads of a site together


@dataclass
class Measured:
    """What came out for one site; NaN where there was nothing to measure.

    Attributes:
        scores: name -> float64 (H,). "row_mass", "entropy", "entropy_normalised", "confidence", "previous_token",
            "best_offset" and "best_offset_score", "steady_offset" and "steady_offset_share", "duplicate_token",
            "prefix_matching", "copying", "sink", "sink_active", "sink_dormant", "value_ratio", "alignment_error",
            "selectivity", and of each role "mass:<role>" and "accuracy:<role>"; see the files of this folder.
        shuffled: name -> float64 (n,H), the same of each shuffle, for scores that have answers to shuffle.
        layer: name -> number of the whole site: "js", "effective_heads", "cka", "sink_share".
        baselines: role -> (best fixed offset, the share of queries that it answers, number of queries).
        reasons: name -> why a score is missing.
    """

    scores: dict[str, Tensor] = field(default_factory=dict)
    shuffled: dict[str, Tensor] = field(default_factory=dict)
    layer: dict[str, float] = field(default_factory=dict)
    baselines: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def measure(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    skip: int = SKIPPED,
    n_shuffles: int = 0,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> dict[Site, Measured]:
    """Measure all heads of a model.

    Args:
        model: see `capture`.
        batches: of the data, with "gold.<role>" where the data knows it. Gold of a batch with a source is about
            cross-attention, any other about self-attention.
        skip: first rows that do not count, see `rows.counted`.
        n_shuffles: how often gold, and the tokens that are matched, are shuffled.
        seed: of the shuffles.
        max_bytes: see `capture`; working on one site takes a few times the size of its weights besides.

    Raises:
        DataError: there are no batches.
    """
    sums: dict[Site, dict[str, Any]] = {site: {} for site in sites(model)}
    generator = torch.Generator().manual_seed(seed)
    n = 0
    for batch in batches:
        n += n_rows(batch)
        asked = _Questions(batch, n_shuffles, generator)
        for found in capture(model, batch, outputs=True, max_bytes=max_bytes):
            for name, value in _piece(found, asked, skip).items():
                own = sums[found.site]
                own[name] = own[name] + value if name in own else value
    if n == 0:
        raise DataError("there are no batches to look at")
    return {site: _finished(model, site, own) for site, own in sums.items()}


class _Questions:
    """What is asked in a batch: its gold, its tokens, and shuffles of both."""

    def __init__(self, batch: Batch, n: int, generator: torch.Generator) -> None:
        self.batch, self.n = batch, n
        self.gold_kind = "cross" if "src" in batch else "self"
        self.roles: dict[str, Asked] = {}
        self.shuffles: dict[str, Shuffled] = {}
        q_pos, k_pos = positions(batch, self.gold_kind)
        self.has_work = torch.zeros_like(q_pos, dtype=torch.bool)
        self.base = base_columns(q_pos, k_pos, self.gold_kind == "cross")
        for role, gold in roles.gold_of(batch).items():
            self.roles[role] = roles.asked(gold, q_pos >= 0)
            self.has_work[self.roles[role].row, self.roles[role].query] = True
            if n:
                self.shuffles[role] = shuffled(self.roles[role], self.base, n, generator)
        self._ids: dict[str, list[Tensor]] = {}
        for kind in ("decoder", "encoder") if "src" in batch else ("self",):
            ids, pos = batch["src" if kind == "encoder" else "ids"], positions(batch, kind)[0]
            self._ids[kind] = [ids, *(shuffled_ids(ids, pos, generator) for _ in range(n))]

    def ids(self, kind: str, rows: slice) -> list[Tensor]:
        """The tokens that a site attends to, and shuffles of them."""
        return [ids[rows] for ids in self._ids[kind]]


def _piece(found: Captured, asked: _Questions, skip: int) -> dict[str, Any]:
    """Sums of a piece of a batch, by name."""
    weights, visible, q_pos, k_pos = found.weights, found.visible, found.q_pos, found.k_pos
    crosses = found.site.kind == "cross"
    rows = counted(q_pos, visible, skip)
    base = base_columns(q_pos, k_pos, crosses)
    first = first_of_document(q_pos, k_pos, crosses)
    sums: dict[str, Any] = {
        "row_mass": patterns.row_mass(weights, rows),
        "entropy": patterns.entropy(weights, rows),
        "entropy_normalised": patterns.normalised_entropy(weights, visible, rows),
        "confidence": patterns.confidence(weights, rows, None if crosses else first),
        "offsets": offsets(weights, base, visible, rows),
        "sink": sink.sink_mass(weights, first, visible, rows),
        "js": diversity.js_divergence(weights, rows),
        "gram": diversity.pattern_gram(weights, rows),
    }
    if found.outputs is not None:
        sums["moments"] = diversity.moments(found.outputs, rows)
    if found.value_norms is not None:
        sums["value_ratio"] = sink.value_ratio(found.value_norms, offset(k_pos) == 0, k_pos >= 0)
    if not crosses:
        sums |= _matching(found, asked, rows)
    if asked.roles and found.site.kind == asked.gold_kind:
        sums |= _golden(found, asked, rows, base, first)
    return sums


def _matching(found: Captured, asked: _Questions, rows: Tensor) -> dict[str, Average]:
    """Scores of tokens that are alike; those of shuffled tokens side by side, (n,H)."""
    sums: dict[str, list[Average]] = {"duplicate_token": [], "prefix_matching": []}
    for ids in asked.ids(found.site.kind, found.rows):
        for name, part in sums.items():
            part.append(getattr(patterns, name)(found.weights, ids, found.k_pos, found.visible, rows))
    result = {name: part[0] for name, part in sums.items()}
    if asked.n:
        result |= {
            f"shuffled {name}": Average(
                torch.stack([a.total for a in part[1:]]), torch.stack([a.n for a in part[1:]])[:, None]
            )
            for name, part in sums.items()
        }
    return result


def _golden(found: Captured, asked: _Questions, rows: Tensor, base: Tensor, first: Tensor) -> dict[str, Any]:
    """Scores against gold."""
    weights, visible = found.weights, found.visible
    work = asked.has_work[found.rows]
    active, dormant = sink.active_and_dormant(weights, first, visible, rows, work)
    sums: dict[str, Any] = {"sink_active": active, "sink_dormant": dormant}
    for role, every in asked.roles.items():
        wanted = every.within(rows, found.start)
        sums[f"role {role}"] = roles.score(weights, wanted)
        sums[f"offsets {role}"] = roles.gold_offsets(wanted, base)
        if role in asked.shuffles:
            sums[f"shuffled {role}"] = asked.shuffles[role].score(weights, visible, rows, found.start)
        if found.site.kind == "cross":
            error = alignment_error(weights, wanted)
            sums["alignment_error"] = sums["alignment_error"] + error if "alignment_error" in sums else error
    return sums


def _finished(model: nn.Module, site: Site, sums: dict[str, Any]) -> Measured:
    """Averages from sums."""
    done = Measured()
    of_roles: dict[str, RoleScore] = {}
    for name, value in sums.items():
        kind, _, role = name.partition(" ")
        if isinstance(value, Average) and name != "js":
            (done.shuffled if kind == "shuffled" else done.scores)[role or name] = value.value
        elif isinstance(value, RoleScore):
            into = done.shuffled if kind == "shuffled" else done.scores
            into |= {MASS + role: value.mass.value, ACCURACY + role: value.accuracy.value}
            if kind == "role":
                of_roles[role] = value
        elif isinstance(value, OffsetCounts):
            done.baselines[role] = (*value.best(), value.n)
    if len(of_roles) > 1:
        done.scores["selectivity"] = roles.selectivity(torch.stack([s.mass.value for s in of_roles.values()]))
    _add_offsets(done, site, sums["offsets"])
    copied, reason = copying(model, site)
    done.scores["copying"] = torch.full((site.n_heads,), torch.nan) if copied is None else copied
    if reason:
        done.reasons["copying"] = reason
    _add_layer(done, site, sums)
    _add_reasons(done, site, sums, len(of_roles))
    done.scores = {name: value.double().cpu() for name, value in done.scores.items()}
    done.shuffled = {name: value.cpu() for name, value in done.shuffled.items()}
    return done


def _add_offsets(done: Measured, site: Site, found: Offsets) -> None:
    best, score = found.best()
    steady, share = found.steady()
    done.scores |= {"best_offset": best, "best_offset_score": score}
    done.scores |= {"steady_offset": steady, "steady_offset_share": share}
    if site.kind != "cross":
        done.scores["previous_token"] = found.score(1)


def _add_layer(done: Measured, site: Site, sums: dict[str, Any]) -> None:
    done.layer["sink_share"] = float(sink.sink_share(done.scores["sink"]))
    if site.n_heads > 1:
        done.layer["js"] = float(diversity.mean_of_pairs(sums["js"].value))
        done.layer["effective_heads"] = float(diversity.effective_heads(sums["gram"]))
        if "moments" in sums:
            done.layer["cka"] = float(diversity.mean_of_pairs(diversity.cka(sums["moments"])))


def _add_reasons(done: Measured, site: Site, sums: dict[str, Any], n_roles: int) -> None:
    why = done.reasons
    if site.kind == "cross":
        why |= dict.fromkeys(("previous_token", "duplicate_token", "prefix_matching"), "the keys are another sequence")
    if "value_ratio" not in sums:
        why["value_ratio"] = "the values cannot be read here"
    if not n_roles:
        gold = "no gold says what must be read here"
        why |= dict.fromkeys(("sink_active", "sink_dormant", "selectivity"), gold)
    elif n_roles == 1:
        why["selectivity"] = "there is one role"
    if site.n_heads == 1:
        why |= dict.fromkeys(("js", "effective_heads", "cka"), "there is one head")
    elif "moments" not in sums:
        why["cka"] = "what the heads read cannot be read here"
