"""Writing with and without a cache side by side: do they agree, how fast is each, what does each hold?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from minitf.commands.write.written import Written, tell

if TYPE_CHECKING:
    from torch import Tensor

    from minitf.commands.write.writer import Writer
    from minitf.generation.generate import Step

WARM_UP = 2  # the first steps of each way are not timed: they read the prompt, and make what is made once

ENOUGH = 100  # steps from which on speeds say something


class Comparison:
    """The steps with a cache; beside each of them the same step without one, until the two differ.

    Args:
        writer: has a cache.
        prompts: one row each.
        seeds: one for each row.
    """

    def __init__(self, writer: Writer, prompts: Sequence[str], seeds: Sequence[int]) -> None:
        self._caches = writer.new_caches()
        self._samplers = [_Remembering(writer.sampler) for _ in range(2)]
        ways = zip((self._caches, None), self._samplers, strict=True)
        self._ways = [writer.steps(prompts, seeds, caches, sampler) for caches, sampler in ways]
        self._seconds, self._n_timed, self._n, self._gap = [0.0, 0.0], 0, 0, 0.0
        self._kind = f"cache={writer.option}" if writer.option else f"a {type(self._caches[0]).__name__} cache"
        self.first: tuple[int, int, list[int]] | None = None  # step, row, the two tokens
        self._logits: list[Tensor] = []

    def __iter__(self) -> Iterator[Step]:
        while True:
            start = perf_counter()
            step = next(self._ways[0], None)
            between = perf_counter()
            if step is None:
                return
            if self.first is None:
                other = next(self._ways[1])
                self._note(step, other, [between - start, perf_counter() - between])
            yield step

    def _note(self, step: Step, other: Step, seconds: list[float]) -> None:
        self._n += 1
        if self._n > WARM_UP:
            self._n_timed += 1
            self._seconds = [sum(pair) for pair in zip(self._seconds, seconds, strict=True)]
        logits = [sampler.logits for sampler in self._samplers]
        # equal ones may be -inf, from which nothing can be taken off
        gaps = (logits[0] - logits[1]).masked_fill(logits[0] == logits[1], 0.0).abs().amax(-1)
        going = ~(step.finished & other.finished) | (step.ids != other.ids)
        self._gap = max(self._gap, float(gaps[going].max()) if bool(going.any()) else 0.0)
        if rows := (step.ids != other.ids).nonzero()[:, 0].tolist():
            self.first = (self._n, rows[0], [int(step.ids[rows[0]]), int(other.ids[rows[0]])])
            self._logits = [one[rows[0]] for one in logits]

    def report(self, texts: Sequence[Written]) -> bool:
        """Say on standard error what was found. Returns whether the two ways agree.

        Args:
            texts: as they were written with the cache.
        """
        tell(f"compared: {self._kind} and none, token by token")
        if reads_less := next((c for c in self._caches if c.keeps is not None and not c.exact), None):
            window, n_sink = reads_less.keeps
            tell(
                f"expected: a difference behind {window + n_sink} tokens, as by its own setting "
                f"({reads_less.key}.exact=false) this cache lets the model "
                f"read less, the last {window} tokens and the first {n_sink}"
            )
        if self.first is None:
            tell(f"first difference: none in {self._n} steps; logits differ by {self._gap:.1e} at most")
        else:
            n, row, (a, b) = self.first
            told = [f"{float(one[a]):.6f} and {float(one[b]):.6f}" for one in self._logits]
            place = f" of prompt {row + 1}" if len(texts) > 1 else ""
            tell(f"first difference: new token {n}{place} is {a} with the cache, {b} without one")
            tell(f"their logits: {told[0]} with the cache, {told[1]} without; logits differ by {self._gap:.1e} at most")
        if self._n_timed:
            speeds = [len(texts) * self._n_timed / max(seconds, 1e-9) for seconds in self._seconds]
            few = "" if self._n_timed >= ENOUGH else f". So few measure chance: write {ENOUGH + WARM_UP} tokens or more"
            tell(
                f"speed: {speeds[0]:,.0f} tokens/s with the cache, {speeds[1]:,.0f} without, over {self._n_timed} "
                f"steps; the first {WARM_UP} of each (prompt and warm-up) are not timed{few}"
            )
        else:
            tell(f"speed: not measured, as the first {WARM_UP} steps (prompt and warm-up) are not timed")
        n_bytes = sum(cache.n_bytes for cache in self._caches)
        tell(
            f"memory: {n_bytes:,} bytes in the caches at the end, as measured; without a cache nothing is kept from "
            "token to token, and what one step needs at its peak was not measured"
        )
        return self.first is None


class _Remembering:
    """A sampler that keeps the logits that it saw last."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.logits: Tensor

    def __call__(self, logits: Tensor, generators: Sequence[Any]) -> Tensor:
        self.logits = logits
        return self._sampler(logits, generators)
