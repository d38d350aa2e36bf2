"""`minitf-generate`: write text with a trained model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.command_line import Job, entry, friendly_errors, take_raw
from minitf.commands.write.compare import Comparison
from minitf.commands.write.kinds import FillKind, writes_text
from minitf.commands.write.loop import loop
from minitf.commands.write.memory import memory_told
from minitf.commands.write.prompts import read_prompt, read_prompts
from minitf.commands.write.streams import check_streams, plug_closed
from minitf.commands.write.wishes import SOURCES, asked_for, check_allow, check_kind, check_prompt_cache, check_wishes
from minitf.commands.write.writer import Writer, needs_prompt
from minitf.commands.write.written import Written, end, follow, heeding, show, show_all, tell
from minitf.errors import ConfigError, DataError
from minitf.files import user_path
from minitf.training.stop import StopSignals
from minitf.typed import check_typed

if TYPE_CHECKING:
    from torch import nn

RAW = ("run", "prompt", "prompt_file", "prompts", "draft", "prompt_cache")

__all__ = ["main", "read_prompt", "stream", "write", "writes_text"]


def main() -> None:
    """Read the command line and write to standard output as the text grows."""
    plug_closed()
    stop_strings = take_stop_strings()
    raw: dict[str, Any] = take_raw((*RAW, "stop_string"))  # the latter is taken, but must be known
    if stop_strings:
        raw["stop_string"] = stop_strings
    with friendly_errors("generate"):
        check_streams()
        if {"-m", "--multirun"} & set(sys.argv[1:]):
            raise ConfigError("this command has no sweeps: call it once for each value")
        check_typed(sys.argv[1:])
    entry("generate", lambda cfg, job: write(cfg, job, raw))


def take_stop_strings() -> list[str]:
    """Take `stop_string=text` off the command line, as typed, however often it stands there."""
    taken = [arg for arg in sys.argv[1:] if arg.lstrip("+").startswith("stop_string=")]
    sys.argv[1:] = [arg for arg in sys.argv[1:] if arg not in taken]
    return [arg.partition("=")[2] for arg in taken]


def write(cfg: DictConfig, job: Job | None, raw: dict[str, Any]) -> None:
    """Print the prompts and what the model adds to them.

    Args:
        cfg: as in configs/generate.yaml.
        job: what was typed, and the signals; None: nothing is known of them.
        raw: `run`, `prompt` and so on exactly as typed; `stop_string` is a list.

    Raises:
        ConfigError: wishes that do not go together, or not with this run.
        DataError: a prompt that cannot be read.
        Interrupted: by a signal, after what was written up to it is given out.
        SystemExit: code 1, after a comparison that found a difference.
    """
    asked = asked_for(cfg, raw, job.overrides if job else ())
    check_wishes(cfg, raw, asked)
    check_streams(cfg.interactive or "-" in (raw.get("prompts"), raw.get("prompt_file")))
    for key in {"run", "draft"} & set(raw):
        check_run(user_path(raw[key]))
    check_allow(cfg.allow)
    if "prompt_cache" in raw:
        check_prompt_cache(user_path(raw["prompt_cache"]))
    stop_strings = raw.get("stop_string", ())
    if "" in stop_strings:
        raise ConfigError("stop_string is empty: give the text that ends a text, or leave it out")
    prompts = [] if cfg.interactive else read_prompts(raw)
    option = job.choices.get("cache") if job else None
    writer = Writer(cfg, raw["run"], stop_strings, raw.get("draft"), raw.get("prompt_cache"), option)
    check_kind(asked, writer.kind.refused, writer.kind.what)
    signals = job.stop if job else StopSignals()
    if cfg.interactive:
        return loop(writer, signals)
    if not asked & set(SOURCES) and (why := needs_prompt(writer.kind)):
        raise ConfigError(why)
    try:
        with memory_told():
            write_for(writer, prompts, "prompts" in raw, signals)
    except (ConfigError, DataError):
        if "prompts" in raw:
            name_line(writer, prompts, raw["prompts"])
        raise


def name_line(writer: Writer, prompts: Sequence[str], name: str) -> None:
    """Raise the first error that one of several prompts gives alone, with the line where it stands.

    Args:
        writer: the model and the wishes.
        prompts: one row each.
        name: of their file.
    """
    for n, prompt in enumerate(prompts, start=1):
        try:
            writer.try_prompt(prompt)
        except (ConfigError, DataError) as error:
            raise type(error)(f"line {n} of {name}: {error}") from error


def write_for(writer: Writer, prompts: Sequence[str], several: bool, signals: StopSignals) -> None:
    """Write for all prompts at once, in the way that was asked for.

    Args:
        writer: the model and the wishes.
        prompts: one row each.
        several: they came as a list, even if it holds a single one.
        signals: of the command; from the first token on the first one ends the texts where they are.

    Raises:
        Interrupted: by a signal.
        SystemExit: code 1, after a comparison that found a difference.
    """
    cfg = writer.cfg
    as_json = cfg.format == "jsonl"
    if isinstance(writer.kind, FillKind):
        return show_all(writer.fill(prompts, cfg.seed), writer.kind.lead, as_json)
    if cfg.beams > 1:
        return show_all(writer.search(prompts), writer.kind.lead, as_json)
    steps, texts, streams = writer.begin(prompts, cfg.seed)
    comparison = None
    if cfg.compare:
        comparison = Comparison(writer, prompts, [text.seed for text in texts])
        steps = iter(comparison)
    steps = heeding(steps, signals)
    pieces = follow(steps, texts, streams, lambda: signals.requested is not None)
    if as_json or several:
        for _ in pieces:
            pass
        show_all(texts, writer.kind.lead, as_json)
    else:
        show(writer.kind.lead(prompts[0]))
        for (piece,) in pieces:
            show(piece)
        show("\n")
    writer.tell_notes()
    agree = comparison is None or comparison.report(texts)
    if not agree:
        tell("error: the text with a cache is not the text without one")
    end(signals)
    if not agree:
        sys.exit(1)


def stream(
    model: nn.Module,
    tokenizer: Any,
    prompt: str,
    *,
    sampler: Any,
    make_cache: Any | None,
    max_new_tokens: int,
    seed: int,
    stop: bool = True,
) -> Iterator[str]:
    """New text in pieces of whole characters; the prompt is checked at once.

    Args:
        model, tokenizer: as `load_run` gives them.
        prompt: any text; it stands behind the token that begins a document, as in training.
        sampler: logits -> ids.
        make_cache: factory of a cache, or None to read the whole text again for every token.
        max_new_tokens: tokens to add at most.
        seed: of the sampler.
        stop: end where the model begins a new document.

    Raises:
        DataError: a character that the tokenizer does not know.
        ConfigError: a prompt that is too long for the model.
    """
    from minitf.commands.write.kinds import TextKind
    from minitf.generation.generate import generate

    kind = TextKind(tokenizer)
    steps = generate(
        model,
        **kind.read(model, [prompt]),
        caches=None if make_cache is None else model.new_caches(make_cache),
        sampler=sampler,
        max_new_tokens=max_new_tokens,
        stop=[kind.end_id] if stop else [],
        seeds=[seed],
    )
    return (piece for (piece,) in follow(steps, [Written(prompt, seed)], [kind.stream()]))


def check_run(path: Path) -> None:
    """Refuse what is no folder or lies inside a run, before anything heavy is imported; `load_run` sees the rest."""
    for folder in path.parents:
        if (folder / "config.yaml").is_file() and (folder / "checkpoints").is_dir():
            raise ConfigError(
                f"{path} lies inside a run; name the run's folder, run={shlex.quote(str(folder))}. checkpoint=best or "
                "checkpoint=last chooses between its checkpoints"
            )
    if not path.is_dir():
        raise ConfigError(f"there is no run folder {path}: give the folder that training printed")
