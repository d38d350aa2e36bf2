"""Scores for people: one table."""

from __future__ import annotations

from typing import Any

# name of a score: how it is called, digits, what it is of
TOLD = {
    "loss": ("loss", "{:.4f}", "nats per scored place"),
    "bits_per_byte": ("bits per byte", "{:.4f}", "of UTF-8 text"),
    "accuracy": ("accuracy", "{:.4f}", "of the scored places"),
    "exact": ("exact match", "{:.4f}", "of the rows: all scored places right"),
    "macro_f1": ("macro F1", "{:.4f}", "mean over the classes"),
    "token_error_rate": ("token error rate", "{:.4f}", "edits per token of the nearest reference, greedy"),
    "sequence_error_rate": ("sequence error rate", "{:.4f}", "of the rows: not any of their references, greedy"),
    "bleu": ("BLEU", "{:.2f}", "from 0 to 100, greedy"),
}
SOLVED = "a solved model"  # of the accuracy


def table(found: dict[str, Any]) -> str:
    """The scores of a run, and beside them what simpler models reach.

    Args:
        found: what scores.json holds.
    """
    left = "" if found["whole"] else "first "
    lines = [
        f"run {found['run']}, checkpoint {found['checkpoint']} (step {found['step']:,})",
        f"{found['data']}, {left}{found['rows']:,} rows of {found['split']}, {found['scored']:,} scored places",
        "",
    ]
    rows = [(TOLD[name][0], TOLD[name][1].format(value), TOLD[name][2]) for name, value in found["scores"].items()]
    if found["notes"]:
        rows += [("", "", f"{TOLD[name][0]}: {note}") for name, note in found["notes"].items()]
    beside = [(name, f"{value:.4f}", "") for name, value in found["baselines"].items()]
    if found["solved"] is not None:
        beside.append((SOLVED, f"{found['solved']:.4f}", "accuracy"))
    if beside:
        rows += [("", "", ""), ("beside it, on the validation split:", "", ""), *beside]
    width = max(len(name) for name, number, _ in rows if number)
    for name, number, what in rows:
        lines.append(f"{name:<{width}}  {number:>9}  {what}".rstrip())
    return "\n".join(lines)
