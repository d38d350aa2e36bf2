"""Findings for people: one table by layer and head, one by name."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from minitf.analysis.heads.names import BEYOND_OFFSET, COPYING, DUPLICATE_TOKEN, INDUCTION, PREVIOUS_TOKEN, SINK, STEADY
from minitf.report.lines import lines, signed, signed_range

if TYPE_CHECKING:
    from minitf.analysis.findings import Findings
    from minitf.analysis.intervene.effects import RoleEffect

WIDTH = 120
NOT_A_CAUSE = (
    "A weight is not a cause: a head is named by what it looks at, above untrained models and shuffled gold, and "
    "beyond any fixed offset. What is lost without it says whether that matters, beside what is lost without others."
)
COLUMNS = (
    ("name", "what the head looks at, see below; - is no name"),
    ("score", "how well that fits, 0 to 1"),
    ("needed", "least score for the name: its threshold, and more than null models and the best fixed offset reach"),
    ("lost", "{lost} without the head: of the answers of its name, or where there are none, of all"),
    ("without others", "the same without another head of its layer instead, lowest to highest"),
)
LOST = {"accuracy": "accuracy that is gone", "loss": "nats of loss that are added"}
MEANINGS = {
    "previous-token": f"weight on the token before, at least {PREVIOUS_TOKEN}",
    "duplicate-token": f"weight on earlier tokens of the same kind, at least {DUPLICATE_TOKEN}",
    "induction": f"weight on what followed the same token before, at least {INDUCTION}",
    "copying": f"how far the matrices alone make what is read more likely to be written, at least {COPYING} of -1 to 1",
    "sink": f"weight on the first token, at least {SINK}: a place to rest on",
}
OFFSET = f"share of queries whose largest weight is at that distance (-2: two before), at least {STEADY}"
ROLE = f"share of its answers whose largest weight is where the data says, {BEYOND_OFFSET:.2f} above any fixed offset"


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
    told = ["The whole model:", *lines([("answers", measure, "how many"), *rows])]
    if found.measure == "accuracy" and known["all"].accuracy == 0:
        told.append("No answer is right, so none can be lost: effects say nothing here.")
    return "\n".join(told)


def _heads(found: Findings) -> str:
    rows = [("head", "name", "score", "needed", "lost", "without others")]
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
    known = dict.fromkeys(name.name for head in found.heads() for name in head.names)
    columns = [(column, text.format(lost=LOST[found.measure])) for column, text in COLUMNS]
    parts = ["Each head alone:", *lines(rows), "Columns:", *lines(columns)]
    if any(not effect.controls for effect in found.effects.values()):
        parts.append("  none: its layer has no other head")
    if known:
        alike: dict[str, list[str]] = {}
        for name in known:
            alike.setdefault(meaning(name), []).append(name)
        parts += ["Names:", *lines([(", ".join(names), text) for text, names in alike.items()])]
    return "\n".join(parts)


def meaning(name: str) -> str:
    """What the score of a name is, in a line.

    Args:
        name: of a head, such as "induction", "offset -2" or a role.
    """
    return MEANINGS.get(name) or (OFFSET if name.startswith("offset ") else ROLE)


def _sets(found: Findings) -> str:
    if not found.sets:
        return _no_sets(found)
    rows = [("name", "heads", "lost of all", "random sets", "lost of its own", "random sets")]
    for name, effect in found.sets.items():
        own = _lost(effect, name) if name in found.full else ("", "")
        rows.append((name, " ".join(s.name(h) for s, h in effect.heads), *_lost(effect, "all"), *own))
    n = max((len(effect.controls) for effect in found.sets.values()), default=0)
    up_to = f" (at most {n}, lowest to highest)" if n else ""
    parts = [
        "All heads with a name together, beside random sets of as many others: of those without any name, or, where",
        f"these are too few, without this one{up_to}:",
        *lines(rows),
    ]
    if any(not effect.controls for effect in found.sets.values()):
        parts.append("none: fewer others than heads with the name, or draws=0: what any set is worth is not known")
    return "\n".join(parts)


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
            rows.append((head.place, *(signed(effect.lost[role]) for role in roles)))
    costs = ["What each head alone costs each role:", *lines(rows)] if len(rows) > 1 else []
    best = []
    for role in roles:
        offset = next((h.baselines[role] for h in found.battery.heads if role in h.baselines), None)
        best.append(f"{role}: best fixed offset {-offset[0]:+d} finds {offset[1]:.3f}" if offset else f"{role}: -")
    rule = "A fixed offset is a rule without a model: always look as many tokens on (+) or back (-)."
    return "\n".join([*costs, rule, *best])


def _lost(effect: RoleEffect, name: str) -> tuple[str, str]:
    controls = [lost[name] for _, lost in effect.controls]
    return signed(effect.lost[name]), signed_range(controls)
