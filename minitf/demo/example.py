"""One row of data as text: its tokens with their places, the answers, and where each answer stands."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from minitf.data.base import BaseData
from minitf.demo.text import WIDTH, pad, width

GAP = "  "
WIDEST = 24  # columns of a token
SPACE = "␣"
Row = dict[str, Tensor]


def n_tokens(row: Row, name: str) -> int:
    """Tokens of "ids" or "src" in one row, without padding."""
    pos = row.get("pos" if name == "ids" else "src_pos")
    return len(row[name]) if pos is None else int((pos >= 0).sum())


def example(data: BaseData, row: Row, n_shown: int, n_arrows: int) -> list[str]:
    """Lines that show one row: source and target, or one row of tokens; below, the arrows from answers to sources.

    Args:
        data: knows the names of ids.
        row: tensors of one row of a batch.
        n_shown, n_arrows: tokens, and arrows, that are shown; what is left out is told.
    """
    lines = []
    if "src" in row:
        tokens = [shown(s) for s in data.src_symbols(row["src"][: n_tokens(row, "src")].tolist())]
        lines += [*_grid({"source": tokens}, n_shown), ""]
    read = n_tokens(row, "ids")
    rows = {"decoder" if "src" in row else "token": [shown(s) for s in data.symbols(row["ids"][:read].tolist())]}
    answers = _answers(data, row, read)
    if "label" not in row and data.gives != "text":  # the next token stands beside the token
        rows["answer"] = answers
    lines += _grid(rows, n_shown)
    if "label" in row:
        lines.append(f"  label  {answers[0]}")
    if arrows := _arrows(data, row, answers):
        lines += ["", *arrows[:n_arrows]]
        if len(arrows) > n_arrows:
            lines.append(f"  ... {n_arrows} of {len(arrows)} places; demo.arrows={len(arrows)} shows all")
    if any(SPACE in line for line in lines):
        lines.append(f"  ({SPACE} is a space)")
    return lines


def shown(symbol: str) -> str:
    """A token as it can stand in a line: spaces and line ends can be seen, and nothing is wider than a column."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in symbol)
    visible = visible.replace(" ", SPACE)
    if width(visible) <= WIDEST:
        return visible
    while width(visible) > WIDEST - 1:
        visible = visible[:-1]
    return visible + "…"


def _answers(data: BaseData, row: Row, n: int) -> list[str]:
    """The answer of each of the first `n` places as text, "" where none is asked for; of a label it alone."""
    targets = row["label"][None] if "label" in row else row["targets"][:n]
    found = []
    for place in targets.reshape(len(targets), -1).tolist():  # several read-outs give several answers
        asked = [t for t in place if t >= 0]
        names = [f"#{t}" for t in asked] if data.gives == "pointer" else map(shown, data.answer_symbols(asked))
        found.append(" ".join(names))
    return found


def _arrows(data: BaseData, row: Row, answers: Sequence[str]) -> list[str]:
    """A line for each place that has gold: its answer, and by role the columns that answer it."""
    side = "src" if "src" in row else "ids"
    names = data.src_symbols if side == "src" else data.symbols
    tokens = [shown(s) for s in names(row[side].tolist())]
    found: list[tuple[str, str]] = []
    for place, answer in enumerate(answers):
        roles = []
        for role in data.roles:
            columns = sorted(c for c in row[f"gold.{role}"][place].tolist() if c >= 0)
            if columns:
                roles.append(f"{role}: " + ", ".join(_run(run, tokens) for run in _runs(columns)))
        if roles:
            asks = "label" if "label" in row else f"place {place:>2}"
            found.append((f"  {asks}: {quoted(answer)}", "; ".join(roles)))
    wide = max((width(start) for start, _ in found), default=0)
    return [_fitting(f"{pad(start, wide)} <- {roles}") for start, roles in found]


def quoted(text: str) -> str:
    """`text` in double quotes: places and numbers as tokens look alike."""
    return f'"{text}"'


def _runs(columns: Sequence[int]) -> list[list[int]]:
    """Neighbouring columns together."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and column == runs[-1][-1] + 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _run(columns: Sequence[int], tokens: Sequence[str]) -> str:
    """`4 "d"`, or `4-6 "d e f"`."""
    first, last = columns[0], columns[-1]
    return f"{first if first == last else f'{first}-{last}'} " + quoted(" ".join(tokens[first : last + 1]))


def _fitting(line: str) -> str:
    """One line of at most the width of a page."""
    while width(line) > WIDTH - 4:
        line = line.removesuffix(" ...")[:-1].rstrip() + " ..."
    return line


def _grid(rows: dict[str, list[str]], n_shown: int) -> list[str]:
    """Places above tokens above answers, in blocks of the width of a page."""
    n_all = max(map(len, rows.values()))
    n = min(n_all, n_shown)
    cells = {"place": [str(i) for i in range(n)], **{name: row[:n] for name, row in rows.items()}}
    widths = [max(width(row[i]) for row in cells.values()) for i in range(n)]
    head = max(map(len, cells))
    lines: list[str] = []
    start = 0
    while start < n:
        end, used = start, 2 + head
        while end < n and (used + len(GAP) + widths[end] <= WIDTH or end == start):
            used += len(GAP) + widths[end]
            end += 1
        if lines:
            lines.append("")
        for name, row in cells.items():
            line = [pad(row[i], widths[i]) for i in range(start, end)]
            lines.append(f"  {pad(name, head)}{GAP}{GAP.join(line)}".rstrip())
        start = end
    if n < n_all:
        lines.append(f"  ... {n} of {n_all} tokens; demo.tokens={n_all} shows all")
    return lines
