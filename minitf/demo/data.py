"""demo=data: what a data set is, some of its examples, where their answers stand, and how far guessing gets."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator

from omegaconf import DictConfig

from minitf.blocks.checks import check_positive
from minitf.config import build_data
from minitf.data.base import BaseData
from minitf.demo.example import Row, example, n_tokens
from minitf.demo.text import table, wrapped

SOON = 0.3  # seconds; what is ready by then needs no word about its progress
KINDS = {
    "text": "text; a decoder is asked for each next token, an encoder for hidden ones",
    "answers": "a row of tokens; a decoder is asked for some of the next ones (task=answer)",
    "seq2seq": "an encoder reads the source, a decoder writes the answer (task=seq2seq)",
    "pointer": "an encoder reads the source, each answer is a place of it (task=pointer)",
    "classify": "an encoder reads a row, and one label is asked for (task=classify)",
    "tag": "an encoder reads a row, and answers are asked for at its tokens (task=tag)",
}


def data(*, n: int, tokens: int, arrows: int, config: DictConfig) -> str:
    """What the data of the config are. They are prepared as training would prepare them.

    Args:
        n: examples, from all over the validation split.
        tokens: of an example that are shown.
        arrows: of an example, from answers to where they stand, that are shown.
        config: its `data` are shown.

    Raises:
        ConfigError: sizes below 1, or values that the data refuse.
        DataError: the data cannot be had.
    """
    check_positive(**{"demo.n": n, "demo.tokens": tokens, "demo.arrows": arrows})
    made: BaseData = build_data(config).prepare(_slow_progress())
    sizes = _counted(made)
    n = min(n, sizes["rows"])
    chosen = [i * sizes["rows"] // n for i in range(n)]  # data may be sorted
    examples = [(i, row) for i, row in enumerate(_rows(made)) if i in chosen]
    parts = [
        f"{made.name}: {KINDS[made.gives]}",
        "\n".join(_about(made.source)),
        table(None, [("  " + name, value) for name, value in _facts(made, sizes)], left=2),
        _scores(made),
    ]
    if made.roles:
        side = " of the source" if sizes["source tokens"] else ""
        parts.append(f'How to read an arrow: place 3: "answer" <- role: 7 "token at place 7{side}, which answers it"')
    parts += [
        "\n".join([f"Row {i:,} of {sizes['rows']:,} of the validation split:", *example(made, row, tokens, arrows)])
        for i, row in examples
    ]
    return "\n\n".join(parts)


def _slow_progress() -> Callable[[str], object]:
    """Lines for whoever waits; stdout is for the demo alone."""
    start = time.perf_counter()

    def tell(line: str) -> None:
        if time.perf_counter() - start > SOON:
            print(line, file=sys.stderr, flush=True)

    return tell


def _about(source: object) -> list[str]:
    """Its docstring, and those of the parents that it refers to, without arguments and errors."""
    own = inspect.getdoc(source) or ""
    parents = [kind for kind in type(source).__mro__[1:] if f"`{kind.__name__}`" in own]
    lines = []
    for block in "\n\n".join([own, *(f"`{kind.__name__}`: {inspect.getdoc(kind)}" for kind in parents)]).split("\n\n"):
        first = block.split("\n")[0].strip()
        if first not in ("Args:", "Attributes:") and not first.startswith("Raises"):
            lines += wrapped(block, indent="  ")
    return lines


def _rows(made: BaseData) -> Iterator[Row]:
    """Each row of the validation split."""
    for batch in made.val_batches():
        for i in range(len(batch["ids"])):
            yield {name: value[i] for name, value in batch.items()}


def _counted(made: BaseData) -> dict[str, int]:
    """Sizes of the validation split."""
    sizes = {"rows": 0, "answers": 0, "tokens": 0, "source tokens": 0}
    lengths = []
    for row in _rows(made):
        sizes["rows"] += 1
        sizes["answers"] += int((row["targets"] >= 0).sum()) if "targets" in row else 1
        sizes["tokens"] += n_tokens(row, "ids")
        sizes["source tokens"] += n_tokens(row, "src") if "src" in row else 0
        lengths.append(n_tokens(row, "src" if "src" in row else "ids"))
    return {**sizes, "shortest": min(lengths), "longest": max(lengths)}


def _facts(made: BaseData, sizes: dict[str, int]) -> Iterator[tuple[str, str]]:
    record, facts = made.record, made.facts
    yield "source", str(record["source"])
    if settings := record.get("task"):
        yield "settings", ", ".join(f"data.task.{name}={value}" for name, value in settings.items())
    yield "licence", record.get("licence") or "not known"
    if "train_tokens" in record:
        yield "training", f"{record['train_documents']:,} documents, {record['train_tokens']:,} tokens"
    else:
        yield "training", f"{record['train_rows']:,} rows" if "train_rows" in record else "new rows at each step"
    if "val_tokens" in record:
        yield "validation", f"{record['val_documents']:,} documents, {record['val_tokens']:,} tokens"
    else:
        read = f"{sizes['source tokens']:,} tokens of sources, " if sizes["source tokens"] else ""
        read += f"{sizes['tokens']:,} tokens" + (" of the decoder" if read else "")
        yield "validation", f"{sizes['rows']:,} rows: {read}, {sizes['answers']:,} answers"
    yield "kept apart", record["split"]
    more = {"of sources": facts["src_vocab_size"], "classes": facts["n_classes"]}
    yield "vocabulary", ", ".join([str(facts["vocab_size"]), *(f"{n} {name}" for name, n in more.items() if n)])
    what = "sources" if sizes["source tokens"] else "rows"
    of = f"{sizes['shortest']} to {sizes['longest']}" if sizes["shortest"] < sizes["longest"] else sizes["longest"]
    yield "lengths", f"{what} of {of} tokens (data.seq_len={made.seq_len})"


def _scores(made: BaseData) -> str:
    """The baselines, and what a model that has solved the task reaches."""
    found = {name.replace("_", " "): value for name, value in made.baselines().items()}
    if made.solved is not None:
        found["a model that has solved it"] = made.solved
    if not found:
        return "No baselines are known."
    head = "Bits per byte of simple models:" if made.gives == "text" else "Share of right answers:"
    names = {name: name.removesuffix(" bits per byte") for name in found}
    return f"{head}\n" + table(None, [(f"  {names[name]}", f"{value:.3f}") for name, value in found.items()])
