"""When memory runs out while a text is written: one message instead of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from minitf.errors import ConfigError
from minitf.memory import ran_out, total_memory

WAYS = (
    "write fewer tokens or for fewer prompts at once, read a long prompt in pieces (prefill_chunk=512), or keep less "
    "of it (cache=window, cache=int8)"
)


@contextmanager
def memory_told() -> Iterator[None]:
    """Around everything that a model does.

    Raises:
        ConfigError: memory could not be had, or a size is beyond what any tensor can have.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OverflowError) as error:
        overflow = isinstance(error, OverflowError) or "overflow" in str(error).lower()
        if not (ran_out(error) or overflow):
            raise
        tried = re.search(r"tried to allocate ([\d.]+ ?\w*)", str(error))
        what = f"{tried[1]} could not be had" if tried else "what was asked for does not fit"
        what = "a size is beyond what any tensor can have" if overflow else what
        memory = total_memory()
        has = f", this machine has {memory:,.0f} bytes in all" if memory < float("inf") else ""
        raise ConfigError(f"the memory is too small: {what}{has}. Choose smaller numbers: {WAYS}") from error
