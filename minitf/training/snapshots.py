"""Of which steps the weights are kept for good."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SnapshotSchedule:
    """Steps whose weights are kept; what changes fast changes early, so a log schedule sees most of it.

    Args:
        every: every so many steps, from that one on; None: none.
        log: so many for each doubling, and step 0: 1 is steps 0, 1, 2, 4, 8, ..., 2 is 0, 1, 2, 3, 4, 6, 8, 11, ...;
            None: none.
        steps: these as well.
    """

    every: int | None = None
    log: int | None = None
    steps: tuple[int, ...] = ()

    def due(self, step: int) -> bool:
        """Whether the weights after `step` optimizer steps are kept."""
        if step in self.steps or (self.log is not None and _on_log_scale(step, self.log)):
            return True
        return self.every is not None and step > 0 and step % self.every == 0


def _on_log_scale(step: int, per_doubling: int) -> bool:
    """Whether step is 0 or some 2**(j / per_doubling), rounded half up."""
    if step == 0:
        return True
    near = round(per_doubling * math.log2(step))
    return any(math.floor(2 ** (j / per_doubling) + 0.5) == step for j in (near - 1, near, near + 1) if j >= 0)
