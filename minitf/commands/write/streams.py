"""Standard streams that a shell has closed (`>&-`)."""

from __future__ import annotations

import os
import sys

from minitf.errors import ConfigError


def plug_closed() -> None:
    """Open what is closed of the first three file descriptors, so that no other file gets their numbers.

    What is said on a closed standard error goes nowhere; a closed standard input or output stays None in `sys`.
    """
    closed = [n for n, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for n in closed:
        handle = os.open(os.devnull, os.O_RDONLY if n == 0 else os.O_WRONLY)
        if handle != n:
            os.dup2(handle, n)
            os.close(handle)
    if sys.stderr is None:
        # print(file=None) would write to standard output
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def check_streams(reads_input: bool = False) -> None:
    """Raise ConfigError where a stream that is needed is closed.

    Args:
        reads_input: whether standard input is read.
    """
    if sys.stdout is None:
        raise ConfigError(
            "standard output is closed, and the text has nowhere to go: leave out >&-, or give a file, >FILE"
        )
    if reads_input and sys.stdin is None:
        raise ConfigError(
            "standard input is closed, and there is nothing to read: leave out <&-, or give a file, <FILE"
        )
