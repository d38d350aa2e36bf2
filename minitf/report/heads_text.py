"""Findings for people: one table by layer and head, one by name."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from minitf.report.lines import lines

if TYPE_CHECKING:
    from minitf.analysis.findings import Findings
    from minitf.analysis.intervene.effects import RoleEffect

WIDTH = 120
NOT_A_CAUSE = (
    "A weight is not a cause: a head is named by what it looks at, above untrained models and shuffled gold, and "
    "beyond any fixed offset. What is lost without it says whether that matters, beside what is lost without others."
)


def table(found: Findings) -> str:
    """All of it.

    Args:
        found: what was found.
    """
    about, settings = found.about, found.battery.settings
    measure = {"accuracy": "accuracy", "loss": "loss in nats"}[found.measure]
    parts = [
        f"run {about['run']}, checkpoint {about['checkpoint']} (step {about['step']:,})\n"
        f"{about['data']}, {settings['rows']:,} rows of the validation split; null models: {settings['untrained']} "
        f"untrained, {settings['shuffles']} shuffles",
        textwrap.fill(NOT_A_CAUSE, WIDTH),
        _full(found, measure),
        _heads(found),
        _sets(found),
        _roles(found),
    ]
    return "\n\n".join(part for part in parts if part)


def _full(found: Findings, measure: str) -> str:
    known = {name: score for name, score in found.full.items() if score.n}
    rows = [
        ("all answers" if name == "all" else name, f"{getattr(score, found.measure):.4f}", f"{score.n:,}")
        for name, score in known.items()
    ]
    return "\n".join(["The whole model:", *lines([("answers", measure, "number"), *rows])])


def _heads(found: Findings) -> str:
    rows = [("head", "name", "score", "needed", "lost", "without others of its layer")]
    for head in found.heads():
        effect = found.effects.get((head.site, head.head))
        names = head.names or (None,)
        for i, name in enumerate(names):
            role = name.name if name and effect and found.full.get(name.name) else "all"
            rows.append(
                (
                    head.place if i == 0 else "",
                    name.name if name else "-",
                    f"{name.value:.3f}" if name else "",
                    f"{name.needed:.3f}" if name else "",
                    *(_lost(effect, role) if effect else ("", "")),
                )
            )
    what = "Each head alone. lost: without it, of the answers of the role that names it, else of all answers."
    return "\n".join([what, *lines(rows)])


def _sets(found: Findings) -> str:
    if not found.sets:
        return _no_sets(found)
    rows = [("name", "heads", "lost of all", "random sets", "lost of its own", "random sets")]
    for name, effect in found.sets.items():
        own = _lost(effect, name) if name in found.full else ("", "")
        rows.append((name, " ".join(s.name(h) for s, h in effect.heads), *_lost(effect, "all"), *own))
    n = max((len(effect.controls) for effect in found.sets.values()), default=0)
    what = (
        "All heads with a name together, beside as many without any name, or, where those are too few, without this\n"
        f"one ({f'up to {n} sets, lowest to highest' if n else 'there are no such sets: nothing to compare with'}):"
    )
    return "\n".join([what, *lines(rows)])


def _no_sets(found: Findings) -> str:
    if any(head.names for head in found.battery.heads):
        return "What the heads with a name are worth is not known: in this model heads cannot be switched off."
    if not found.battery.settings["untrained"]:
        return "No head has a name: that takes untrained models to compare with, and there are none (untrained=0)."
    return "No head has a name: none is above the null models and beyond the best fixed offset."


def _roles(found: Findings) -> str:
    """Which role each head costs, where there are several."""
    roles = [name for name, score in found.full.items() if name != "all" and score.n]
    if len(roles) < 2:
        return ""
    rows = [("head", *roles)]
    for head in found.heads():
        if effect := found.effects.get((head.site, head.head)):
            rows.append((head.place, *(f"{effect.lost[role]:+.3f}" for role in roles)))
    costs = ["What each head alone costs each role:", *lines(rows)] if len(rows) > 1 else []
    best = []
    for role in roles:
        offset = next((h.baselines[role] for h in found.battery.heads if role in h.baselines), None)
        best.append(f"{role}: best fixed offset {-offset[0]:+d} finds {offset[1]:.3f}" if offset else f"{role}: -")
    return "\n".join([*costs, *best])


def _lost(effect: RoleEffect, name: str) -> tuple[str, str]:
    controls = [lost[name] for _, lost in effect.controls]
    between = f"{min(controls):+.3f} to {max(controls):+.3f}" if controls else "none"
    return f"{effect.lost[name]:+.3f}", between
