"""demo=shapes: every step of a model with the shape of its tensor, in letters and in numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from omegaconf import DictConfig

from minitf.blocks.checks import check_positive
from minitf.demo.letters import MEANING, Letters
from minitf.demo.record import Step, batch_for, build_model, record
from minitf.demo.text import paragraph, table

_EXPERT = re.compile(r"(.*\bexperts)\.(\d+)\.(.*)")
_LAYER = re.compile(r"(?:(.*)\.)?layers\.(\d+)\.(.*)")
Line = tuple[str, str, str, str]


def shapes(*, batch: int, length: int, src_length: int, config: DictConfig) -> str:
    """The shape walk of the model that the config builds.

    Args:
        batch: rows B.
        length: tokens T of a row.
        src_length: tokens S of a row of the other sequence, for a model that reads two.
        config: its `model` is built and run once.

    Raises:
        ConfigError: sizes below 1, or parts that do not fit together.
    """
    check_positive(**{"demo.batch": batch, "demo.length": length, "demo.src_length": src_length})
    model = build_model(config)
    inputs = batch_for(model, config.data, batch, length, src_length)
    letters = Letters(model, config, batch, length, src_length if "src" in inputs else None)
    lines = [_line(k, Step(k, tuple(v.shape)), letters) for k, v in inputs.items() if v is not None]
    lines += _walk(record(model, inputs), letters)
    legend = ", ".join(f"{x} = {letters.used[x]} {MEANING[x]}" for x in MEANING if x in letters.used)
    head = f"{type(model).__name__}, one pass; what each step gives"
    return "\n".join([head, paragraph(legend), "", table(("", "letters", "numbers", "weights"), lines, left=4)])


def _walk(steps: Sequence[Step], letters: Letters) -> list[Line]:
    """The steps in order; layers that do the same as the one before them share one line, and so do experts."""
    lines: list[Line] = []
    before: list[tuple[str, ...]] = []
    same: tuple[str, int, int] | None = None  # stack, first and last layer that repeat the one before

    def tell_same() -> None:
        if same:
            stack, first, last = same
            n = f"layer {first}" if first == last else f"layers {first}-{last}"
            lines.append((f"{stack} {n}: the same".strip(), "", "", ""))

    for (stack, number), own in _blocks(steps):
        if number is None:
            tell_same()
            same, before = None, []
            lines += [_line(step.name, step, letters) for step in own]
            continue
        inside = [_line(f"  {_LAYER.fullmatch(step.name)[3]}", step, letters) for step in own]
        # how many tokens choose an expert is no difference: it is another number with every text
        told = [(a, b, "" if _EXPERT.match(a) else c, d) for a, b, c, d in inside]
        if told == before:
            same = (stack, same[1] if same else number, number)
            continue
        tell_same()
        same, before = None, told
        lines += [(f"{stack} layer {number}".strip(), "", "", ""), *_experts(inside)]
    tell_same()
    return lines


def _experts(lines: list[Line]) -> list[Line]:
    """The lines of a layer; experts that do the same as the one before them share one line."""
    own: dict[str, list[Line]] = {}  # the first column without the line's own end -> lines
    for line in lines:
        place = _EXPERT.match(line[0])
        own.setdefault(f"{place[1]}.{place[2]}" if place else line[0], []).append(line)
    found: list[Line] = []
    before, same = [], []
    for key, block in [*own.items(), ("", [])]:
        told = [(_EXPERT.sub(r"\1.\3", a), b, d) for a, b, _, d in block] if _EXPERT.match(f"{key}.") else []
        if told and told == before:
            same.append(key)
            continue
        if same:
            first, last = same[0], same[-1].rpartition(".")[2]
            found.append((f"{first}{'' if len(same) == 1 else f'-{last}'}: the same", "", "", ""))
        before, same = told, []
        found += block
    return found


def _blocks(steps: Sequence[Step]) -> list[tuple[tuple[str, int | None], list[Step]]]:
    """Neighbouring steps of one layer together; (stack, number of the layer), or ("", None) outside of layers."""
    found: list[tuple[tuple[str, int | None], list[Step]]] = []
    for step in steps:
        place = _LAYER.fullmatch(step.name)
        key = (place[1] or "", int(place[2])) if place else ("", None)
        if found and found[-1][0] == key:
            found[-1][1].append(step)
        else:
            found.append((key, [step]))
    return found


def _line(name: str, step: Step, letters: Letters) -> Line:
    times = f" ({step.times} times)" if step.times > 1 else ""
    return name + times, letters.of(step.name, step.shape), f"({', '.join(map(str, step.shape))})", step.weights
