"""`minitf-generate`: write text with a trained model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.command_line import Job, entry, friendly_errors, take_raw
from minitf.config import build
from minitf.errors import ConfigError, DataError
from minitf.files import user_path
from minitf.typed import check_typed

if TYPE_CHECKING:
    from torch import nn

    from minitf.data.tokenizer import StreamDecoder
    from minitf.generation.generate import Step

RAW = ("run", "prompt", "prompt_file")


def main() -> None:
    """Read the command line and write to standard output as the text grows."""
    raw = take_raw(RAW)
    with friendly_errors("generate"):
        if {"-m", "--multirun"} & set(sys.argv[1:]):
            raise ConfigError("this command has no sweeps: call it once for each value")
        check_typed(sys.argv[1:])
    entry("generate", lambda cfg, job: write(cfg, job, raw))


def write(cfg: DictConfig, job: Job, raw: dict[str, str]) -> None:
    """Print the prompt and what the model adds to it.

    Args:
        cfg: as in configs/generate.yaml.
        job: unused; this command writes no files.
        raw: `run`, `prompt`, `prompt_file` exactly as typed.
    """
    from minitf.runs import load_run

    if not raw.get("run"):
        raise ConfigError("say which model is to write: run=FOLDER, the folder that training printed")
    check_run(user_path(raw["run"]))
    prompt = read_prompt(raw)
    sampler = build(cfg.sampler)
    make_cache = build(cfg.cache) if cfg.cache else None
    if cfg.max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens must be at least 1, got {cfg.max_new_tokens}")
    model, tokenizer, _ = load_run(user_path(raw["run"]), cfg.checkpoint, list(cfg.allow))
    if not writes_text(model, tokenizer):
        raise ConfigError(
            f"{raw['run']} holds a model ({type(model).__name__}) that does not go on with a text: "
            "give the run of a causal language model, such as model=gpt_tiny with task=causal_lm"
        )
    pieces = stream(
        model,
        tokenizer,
        prompt,
        sampler=sampler,
        make_cache=make_cache,
        max_new_tokens=cfg.max_new_tokens,
        seed=cfg.seed,
        stop=cfg.stop,
    )
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


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
    import torch

    from minitf.data.tokenizer import StreamDecoder
    from minitf.generation.generate import generate

    ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(prompt)]])
    steps = generate(
        model,
        ids,
        caches=None if make_cache is None else model.new_caches(make_cache),
        sampler=sampler,
        max_new_tokens=max_new_tokens,
        stop=[tokenizer.bos_id] if stop else [],
        seeds=[seed],
    )
    return _decoded(steps, StreamDecoder(tokenizer))


def _decoded(steps: Iterator[Step], decoder: StreamDecoder) -> Iterator[str]:
    for step in steps:
        yield decoder.push(int(step.ids[0]))
    yield decoder.flush()


def writes_text(model: nn.Module, tokenizer: Any) -> bool:
    """Whether a model goes on with a text: it was trained on text, which no id hides, and does not see what comes."""
    reads_on = hasattr(model, "step") and not hasattr(model, "encode") and not model.sees_future
    return reads_on and tokenizer is not None and tokenizer.mask_id is None


def check_run(path: Path) -> None:
    """Refuse what lies inside a run folder, before anything heavy is imported; `load_run` looks at the rest."""
    for folder in path.parents:
        if (folder / "config.yaml").is_file() and (folder / "checkpoints").is_dir():
            raise ConfigError(
                f"{path} lies inside a run; name the run's folder, run={shlex.quote(str(folder))}. checkpoint=best or "
                "checkpoint=last chooses between its checkpoints"
            )


def read_prompt(raw: dict[str, str]) -> str:
    """The prompt from the command line, a file or standard input, character for character.

    Raises:
        ConfigError: both a prompt and a file.
        DataError: the file cannot be read as UTF-8.
    """
    if "prompt" in raw and "prompt_file" in raw:
        raise ConfigError("prompt and prompt_file were both given: choose one of them")
    if "prompt_file" not in raw:
        return raw.get("prompt", "")
    name = raw["prompt_file"]
    try:
        data = sys.stdin.buffer.read() if name == "-" else user_path(name).read_bytes()
    except OSError as error:
        raise DataError(f"the prompt file {name} cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"the prompt file {name} is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}"
        ) from error
