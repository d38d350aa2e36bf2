"""The prompt loop: a line comes in, a text goes out."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8

from minitf.commands.write.kinds import FillKind
from minitf.commands.write.memory import memory_told
from minitf.commands.write.prompts import as_text
from minitf.commands.write.writer import Writer
from minitf.commands.write.written import follow, show, show_all, tell
from minitf.errors import ConfigError, DataError
from minitf.training.stop import StopSignals


def loop(writer: Writer, signals: StopSignals | None) -> None:
    """Write for each line of standard input, until an empty one or the end; each line has the next seed.

    Ctrl-C ends the text that is being written; where none is, or for the second time, it ends the program. A prompt
    that cannot be read is told, with format=jsonl by an object with an "error", too, and the next one is asked for.

    Args:
        writer: the model and the wishes.
        signals: of the command; None: they act at once.

    Raises:
        Interrupted: a signal that ends the program.
    """
    signals = signals or StopSignals()
    seed, typed_here = writer.cfg.seed, sys.stdin.isatty()
    if typed_here:
        tell("one prompt a line; an empty line or Ctrl-D ends, Ctrl-C stops a text")
    while True:
        if typed_here:
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if line.removeprefix(BOM_UTF8).strip(b"\r\n") == b"":
            return
        signals.hold()
        try:
            with memory_told():
                _answer(writer, line, seed, signals)
        except (ConfigError, DataError) as error:
            tell(f"error: {error}")
            if writer.cfg.format == "jsonl":
                prompt = line.decode("utf-8-sig", errors="replace").removesuffix("\n").removesuffix("\r")
                show(json.dumps({"prompt": prompt, "seed": seed, "error": str(error)}, ensure_ascii=False) + "\n")
        if signals.requested == "SIGINT":
            signals.requested = None
        signals.release()
        seed += 1


def _answer(writer: Writer, line: bytes, seed: int, signals: StopSignals) -> None:
    prompt = as_text(line, "this line").removesuffix("\n").removesuffix("\r")
    as_json = writer.cfg.format == "jsonl"
    if isinstance(writer.kind, FillKind):
        return show_all(writer.fill([prompt], seed), writer.kind.lead, as_json)
    steps, texts, streams = writer.begin([prompt], seed)
    if not as_json:
        show(writer.kind.lead(prompt))
    for (piece,) in follow(steps, texts, streams, lambda: signals.requested is not None):
        if not as_json:
            show(piece)
    if as_json:
        show_all(texts, writer.kind.lead, as_json)
    else:
        show("\n")
    writer.tell_notes()
