"""Only what is near may be read."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask
from minitf.errors import ConfigError


class SlidingWindow(Mask):
    """Causal, at most `window` keys back, the token itself included; the first `n_sink` tokens stay visible.

    Source: Beltagy et al. 2020 (Longformer), section 3.1; sinks: Xiao et al. 2023 (StreamingLLM).
    """

    def __init__(self, window: int, n_sink: int = 0) -> None:
        check_positive(window=window)
        if not isinstance(n_sink, int) or isinstance(n_sink, bool) or n_sink < 0:
            raise ConfigError(f"n_sink must be a whole number, 0 or more, got {n_sink!r}")
        self.window = window
        self.n_sink = n_sink
        self.reach = (None if n_sink else window - 1, 0)

    def reads_within(self, window: int, n_sink: int) -> bool:
        return self.window <= window and self.n_sink <= n_sink

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        near = q_off - k_off < self.window
        return (k_off <= q_off) & (near | (k_off < self.n_sink))
