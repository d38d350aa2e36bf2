"""The prompts: from the command line, a file, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from minitf.errors import ConfigError, DataError
from minitf.files import user_path

MARK = "\ufeff"  # the byte order mark that some editors put before a text


def read_prompt(raw: Mapping[str, Any]) -> str:
    """The prompt from the command line, a file or standard input, character for character.

    Raises:
        ConfigError: both a prompt and a file.
        DataError: the file cannot be read as UTF-8.
    """
    if "prompt" in raw and "prompt_file" in raw:
        raise ConfigError("prompt and prompt_file were both given: choose one of them")
    if "prompt_file" not in raw:
        return raw.get("prompt", "")
    return _read(raw["prompt_file"])


def read_prompts(raw: Mapping[str, Any]) -> list[str]:
    """All prompts: one, or one for each line of the file `prompts`; an empty line is an empty prompt.

    Raises:
        ConfigError: both a prompt and a file.
        DataError: the file cannot be read as UTF-8, or has no line.
    """
    if "prompts" not in raw:
        return [read_prompt(raw)]
    # lines end at \n alone: splitlines would also cut at form feeds and the like, which a text may hold
    lines = _read(raw["prompts"]).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise DataError(f"the prompt file {raw['prompts']} is empty: give one prompt a line")
    # files that were put together may each bring a byte order mark
    return [line.removeprefix(MARK).removesuffix("\r") for line in lines]


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else user_path(name).read_bytes()
    except OSError as error:
        raise DataError(f"the prompt file {name} cannot be read: {error.strerror}") from error
    return as_text(data, f"the prompt file {name}")


def as_text(data: bytes, what: str) -> str:
    """Bytes as text, without a byte order mark.

    Args:
        data: of a text.
        what: it is, for the message.

    Raises:
        DataError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8").removeprefix(MARK)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        place = f" (line {line})" if b"\n" in data[:-1] else ""
        raise DataError(f"{what} is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}{place}") from error
