"""How many tokens a second training itself takes in."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor


class Throughput:
    """Tokens per second of training: time spent on validation and on writing checkpoints is left out.

    Args:
        clock: seconds from any fixed point, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._left_out_at: float | None = None
        self._tokens, self._seconds = 0, 0.0
        self.start()

    def start(self) -> None:
        """Begin a window: no tokens, no time."""
        self._window_start = self._clock()
        self._window_tokens: int | Tensor = 0
        self._left_out_at = None

    def state_dict(self) -> dict[str, float]:
        """Return the tokens and the seconds of all finished windows."""
        return {"tokens": self._tokens, "seconds": self._seconds}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Count on from another part of the same run."""
        self._tokens, self._seconds = state["tokens"], state["seconds"]

    def add(self, n_tokens: int | Tensor) -> None:
        """Count the tokens of one batch; a tensor is read when the window ends."""
        self._window_tokens = self._window_tokens + n_tokens

    def window(self) -> float:
        """Return tokens/s since the last call (or since the start), and begin a new window."""
        tokens = int(self._window_tokens)  # of a device, it waits until all is computed, which belongs to the window
        now = self._clock()
        seconds = now - self._window_start
        self._tokens += tokens
        self._seconds += seconds
        self._window_start, self._window_tokens = now, 0
        return tokens / seconds if seconds > 0 else 0.0

    def overall(self) -> float:
        """Return tokens/s over all finished windows since the start; 0.0 before the first."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0

    def pause(self) -> None:
        """Stop counting time; a second pause before the next resume changes nothing."""
        if self._left_out_at is None:
            self._left_out_at = self._clock()

    def resume(self) -> None:
        """Count time again."""
        if self._left_out_at is not None:
            self._window_start += self._clock() - self._left_out_at
            self._left_out_at = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of the block out; inside another pause it does nothing."""
        if self._left_out_at is not None:
            yield
            return
        self.pause()
        try:
            yield
        finally:
            self.resume()


def n_tokens(batch: Mapping[str, Any]) -> int | Tensor:
    """How many tokens a model reads in a batch: padding is none.

    Args:
        batch: "ids" and, of encoder-decoders, "src"; "pos" and "src_pos" where rows are padded, -1 there.

    Returns:
        a tensor where rows are padded, on the device of the batch: nobody has to wait for it.
    """
    found = 0
    for name, pos in (("ids", "pos"), ("src", "src_pos")):
        if pos in batch:
            found = found + (batch[pos] >= 0).sum()
        elif name in batch:
            found = found + batch[name].numel()
    return found
