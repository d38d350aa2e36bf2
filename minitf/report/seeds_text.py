"""Runs that differ in their seed side by side: which names come back, what their heads are worth, who owns a role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from minitf.analysis.heads.measure import ACCURACY, MASS
from minitf.analysis.heads.names import PATTERNS
from minitf.analysis.matching import role_stability
from minitf.errors import ConfigError
from minitf.report.lines import lines, signed_range

if TYPE_CHECKING:
    from minitf.analysis.findings import Findings
    from minitf.analysis.heads.battery import HeadReport


def check_alike(runs: Sequence[Findings]) -> None:
    """Raise ConfigError unless all of them have the same layers and heads, and were asked the same of the same data."""
    first = [head.place for head in runs[0].battery.heads]
    asked = _asked(runs[0])
    for found in runs[1:]:
        if _asked(found) != asked:
            raise ConfigError(
                f"{found.about['run']} answers {_asked(found)}, {runs[0].about['run']} {asked}: others= takes runs of "
                "the same data and task that differ in their seed"
            )
        if [head.place for head in found.battery.heads] != first:
            raise ConfigError(
                f"{found.about['run']} has other heads than {runs[0].about['run']}: others= takes runs of the same "
                "model that differ in their seed"
            )


def _asked(found: Findings) -> str:
    """Data, roles and measure, as people read them."""
    roles = ", ".join(role for role in found.full if role != "all") or "no role"
    return f"{found.about['data']} ({roles}; {found.measure})"


def seeds_table(runs: Sequence[Findings]) -> str:
    """Names, sets, owners and matched heads across seeds; lowest to highest, in the order of the runs where it says so.

    Args:
        runs: of the same model, with different seeds.
    """
    n = len(runs)
    parts = [f"Across {n} runs: " + ", ".join(str(found.about["run"]) for found in runs), _names(runs)]
    parts += [part for part in (_owners(runs), _matched(runs)) if part]
    return "\n\n".join(parts)


def to_dict(runs: Sequence[Findings]) -> dict[str, Any]:
    """Plain values for JSON: what `seeds_table` tells."""
    return {
        "runs": [found.about["run"] for found in runs],
        "sets": [found.to_dict()["sets"] for found in runs],
        "full": [found.to_dict()["full"] for found in runs],
        "owners": [{role: owner.place for role, (owner, *_) in owners(found).items()} for found in runs],
        "stability": [asdict(found) for found in stability(runs)],
    }


def _names(runs: Sequence[Findings]) -> str:
    rows = [("name", "runs", "heads in each", "score", "lost of all", "random sets")]
    called = (name.name for found in runs for head in found.battery.heads for name in head.names)
    for name in dict.fromkeys(called):
        own = [found for found in runs if found.battery.called(name)]
        values = [n.value for found in own for h in found.battery.called(name) for n in h.names if n.name == name]
        # recurrent models have names, but heads that cannot be switched off
        effects = [found.sets[name] for found in own if name in found.sets]
        lost = [effect.lost["all"] for effect in effects]
        controls = [lost_then["all"] for effect in effects for _, lost_then in effect.controls]
        heads = "; ".join(" ".join(head.place for head in found.battery.called(name)) or "-" for found in runs)
        rows.append(
            (name, f"{len(own)} of {len(runs)}", heads, span(values), signed_range(lost), signed_range(controls))
        )
    if len(rows) == 1:
        return "No head has a name in any of them."
    what = (
        "Heads with a name, and what is lost without all of them together, beside random sets of as many others\n"
        "(lowest to highest; of score: any head with that name in any run):"
    )
    return "\n".join([what, *lines(rows)])


def owners(found: Findings) -> dict[str, tuple[HeadReport, float, float]]:
    """Role -> the head that it costs most to lose, what it costs the role, and what it costs the others on average.

    Args:
        found: of one run, with two roles or more; else {}. Heads of other kinds of attention than that of the gold,
            such as encoders of a model that translates, own nothing.
    """
    roles = [name for name, score in found.full.items() if name != "all" and score.n]
    heads = [head for head in found.heads() if (head.site, head.head) in found.effects and head.baselines]
    if len(roles) < 2 or not heads:
        return {}
    best = {}
    for role in roles:
        head = max(heads, key=lambda head: found.effects[head.site, head.head].lost[role])
        lost = found.effects[head.site, head.head].lost
        others = [lost[other] for other in roles if other != role]
        best[role] = (head, lost[role], sum(others) / len(others))
    return best


def _owners(runs: Sequence[Findings]) -> str:
    found = [owners(run) for run in runs]
    if not all(found):
        return ""
    rows = [("role", "owner in each", "costs its role", "costs the others, mean")]
    for role in found[0]:
        each = [one[role] for one in found]
        places = "; ".join(head.place for head, _, _ in each)
        rows.append(
            (role, places, signed_range([own for _, own, _ in each]), signed_range([other for _, _, other in each]))
        )
    different = [len({head.place for head, _, _ in one.values()}) for one in found]
    n = len(found[0])
    told = f"{n} roles are owned by {', '.join(map(str, different))} different heads."
    return "\n".join(["Each role's owner, the head that it costs most to lose:", *lines(rows), told])


def stability(runs: Sequence[Findings]) -> list[Any]:
    """Role by role after the heads of each layer were matched to those of the first run by their scores.

    Args:
        runs: of the same model.
    """
    names = {name: score for name, (score, _) in PATTERNS.items()}
    names |= {role: MASS + role for head in runs[0].battery.heads for role in head.baselines}
    known = {
        name: score
        for name, score in names.items()
        if all(
            head.scores.get(score) is not None or _elsewhere(head, score) for run in runs for head in run.battery.heads
        )
    }
    if not known:
        return []
    seeds = []
    for run in runs:
        by_site: dict[Any, list[list[float]]] = {}
        for head in run.battery.heads:
            by_site.setdefault(head.site, []).append([head.scores.get(score) or 0.0 for score in known.values()])
        seeds.append({site: torch.tensor(rows) for site, rows in by_site.items()})
    return role_stability(seeds, list(known))


def _elsewhere(head: HeadReport, score: str) -> bool:
    """Whether it is a score of other kinds of attention, such as the gold of cross-attention in an encoder."""
    return score.startswith((MASS, ACCURACY)) or head.site.kind == "cross"


def _matched(runs: Sequence[Findings]) -> str:
    found = stability(runs)
    if not found:
        return ""
    places = [head.place for head in runs[0].battery.heads]
    rows = [("score", "best head of each run", "spread", "two heads and their partners")]
    for role in found:
        top = sorted(range(len(places)), key=lambda i: -max(role.matched[i]))[:2]
        partners = "; ".join(f"{places[i]}: {' '.join(f'{x:.2f}' for x in role.matched[i])}" for i in top)
        rows.append((role.role, " ".join(f"{x:.2f}" for x in role.best), f"{role.spread:.2f}", partners))
    what = (
        "Heads matched to those of the first run, layer by layer, by all their scores: numbers of heads mean nothing,\n"
        "so each is paired with the most similar one of each other run. spread: largest minus smallest of the best\n"
        "heads; then the two best heads of the first run, each with its own score and its partners'.\n"
        "The score of a role is here the weight on what its gold says, not the share of right answers:"
    )
    return "\n".join([what, *lines(rows)])


def span(values: Sequence[float]) -> str:
    """Lowest to highest."""
    return f"{min(values):.3f} to {max(values):.3f}" if values else "none"
