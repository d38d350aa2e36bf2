"""One text that was written, and how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from minitf.training.stop import Interrupted, StopSignals

if TYPE_CHECKING:
    from minitf.generation.generate import Step

STOP_TOKEN, STOP_STRING, LENGTH, INTERRUPTED = "stop token", "stop string", "length", "interrupted"


class Stream(Protocol):
    """Decodes ids one by one, as `minitf.generation.text.TextStream` does."""

    stopped: str | None

    def push(self, token_id: int) -> str:
        """Text that the id makes certain."""

    def flush(self) -> str:
        """The rest at the end."""


@dataclass
class Written:
    """A text, finished or growing.

    Attributes:
        prompt: as it was given.
        seed: of its sampler; None where nothing is drawn.
        text: what was written, without the stop string.
        ids: all new tokens, also those that made up a stop token or a stop string.
        logprobs: natural log of the model's own probability of each.
        finished: why it ends: "stop token", "stop string", "length" or "interrupted".
        seconds: from the beginning to its last token.
        extra: what one way of writing tells beside it, such as a score.
    """

    prompt: str
    seed: int | None
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finished: str | None = None
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """As one line of JSON."""
        own = {key: value for key, value in vars(self).items() if key != "extra"}
        return json.dumps(own | {"seconds": round(self.seconds, 6)} | self.extra, ensure_ascii=False)


def heeding(steps: Iterator[Step], signals: StopSignals) -> Iterator[Step]:
    """The same steps; a signal acts at once while the first is made, and waits for the end of a later one.

    Args:
        steps: one token for each row.
        signals: of the command; held from the first step on.
    """
    for step in steps:
        signals.hold()
        yield step


def end(signals: StopSignals) -> None:
    """Let signals act again; one that came while a text was written is told, and ends the program.

    Raises:
        Interrupted: there was one.
    """
    try:
        signals.release()
    except Interrupted as wish:
        wish.told = True
        tell(f"interrupted by {wish.name}")
        raise


def follow(
    steps: Iterator[Step],
    texts: Sequence[Written],
    streams: Sequence[Stream],
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[list[str]]:
    """Write the tokens of each row into its text: the new pieces of each step, and at last what was held back.

    Args:
        steps: one token for each row.
        texts: grow.
        streams: of the same rows, fresh.
        interrupted: asked after each step whether to end here.
    """
    start, over = perf_counter(), LENGTH
    for step in steps:
        rows = zip(texts, streams, step.ids.tolist(), step.logprobs.tolist(), step.finished.tolist(), strict=True)
        yield [_add(*row, start) for row in rows]
        if all(text.finished for text in texts):
            break
        if interrupted():
            over = INTERRUPTED
            break
    if hasattr(steps, "close"):
        steps.close()  # what its end says must not wait for the garbage collection
    # a row that had ended before its neighbours is as it was
    pieces = []
    for text, stream in zip(texts, streams, strict=True):
        text.finished = text.finished or over
        pieces.append(stream.flush())
        text.text += pieces[-1]
    yield pieces


def _add(text: Written, stream: Stream, token: int, logprob: float, ends: bool, start: float) -> str:
    if text.finished:
        return ""
    text.ids.append(token)
    text.logprobs.append(logprob)
    text.seconds = perf_counter() - start
    piece = stream.push(token)
    text.text += piece
    if stream.stopped is not None:
        text.finished = STOP_STRING
    elif ends:
        text.finished = STOP_TOKEN
    return piece


def show(pieces: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(pieces)
    sys.stdout.flush()


def tell(line: str) -> None:
    """Say something beside the text, on standard error."""
    print(line, file=sys.stderr, flush=True)


def show_all(texts: Sequence[Written], lead: Callable[[str], str], as_json: bool) -> None:
    """Print finished texts: one JSON object a line, or each under a line that tells which it is, if there are several.

    Args:
        texts: in order.
        lead: what stands before the text of a prompt.
        as_json: which of the two.
    """
    for i, text in enumerate(texts):
        if as_json:
            show(text.line() + "\n")
            continue
        if len(texts) > 1 or "score" in text.extra:
            score = f", score {text.extra['score']:.4f}, {text.finished}" if "score" in text.extra else ""
            show(f"=== {i + 1} of {len(texts)}{score} ===\n")
        show(f"{lead(text.prompt)}{text.text}\n")
