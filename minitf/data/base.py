"""What every data module does: it knows the plan of a run and gives its batches, each a function of seed and step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning as L

from minitf.data.windows import Steps, TrainStream, rows_per_part
from minitf.errors import ConfigError
from minitf.memory import total_memory

BYTES_PER_TOKEN = 64  # at the very least: ids, targets, and a few numbers of the smallest model


class BaseData(L.LightningDataModule):
    """Batches for one task; the constructor reads nothing, `prepare` does the work.

    Args:
        seq_len: tokens of the longest row, T.
        batch_size: rows per optimizer step, B.
        seed: an integer >= 0.

    Attributes:
        gives: what its batches are made for: "text" (next or hidden tokens), "answers" (next tokens of which
            some are scored), "seq2seq", "pointer", "classify" or "tag".
        name: for messages.
        record: plain values that a run keeps; "sha256" stands for the content.
        val_bytes: UTF-8 bytes of the validation split, where it is text.
        source: the task or source that the content comes from; its docstring tells people what it is.
        roles: names of the gold in its batches. "gold.<role>" (B,T,K): for each place of `targets` (for one label: T is
            1) up to K columns that answer it, -1 where there is none (further); columns of "src" for an
            encoder-decoder, of "ids" otherwise.
        solved: share of right answers of a model that has solved the task; None where nobody can say.

    Raises ConfigError for sizes below 1.
    """

    gives: ClassVar[str]
    name: str
    val_bytes: int | None = None
    source: object
    roles: tuple[str, ...] = ()
    solved: float | None = None

    def __init__(self, seq_len: int, batch_size: int, seed: int) -> None:
        super().__init__()
        for name, value, least in [("seq_len", seq_len, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)]:
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"data.{name} ({value!r}) must be a whole number of at least {least}")
        self.seq_len = seq_len
        self.batch_size = batch_size
        self.seed = seed
        self.record: dict[str, Any] = {}
        self.n_steps: int | None = None
        self.n_micro = 1
        self.rank = 0
        self.world_size = 1

    @property
    @abstractmethod
    def facts(self) -> dict[str, int | None]:
        """What models must know: vocab_size, src_vocab_size, n_classes; None where it has no meaning."""

    @abstractmethod
    def prepare(self, progress: Callable[[str], object] = print) -> BaseData:
        """Make everything ready, and return self.

        Args:
            progress: is called with one line of text now and then.
        """

    @abstractmethod
    def steps(self) -> Steps:
        """What gives the batch of any step."""

    @abstractmethod
    def val_batches(self) -> Any:
        """This process's share of the whole validation split; has a length and can be read again."""

    def baselines(self) -> dict[str, float]:
        """Scores of simpler models on the same splits, by name."""
        return {}

    def symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "ids"."""
        return [str(i) for i in ids]

    def src_symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "src"."""
        return self.symbols(ids)

    def answer_symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for targets and labels; not for those of "pointer", which are columns of "src"."""
        return self.symbols(ids) if self.facts["n_classes"] is None else [str(i) for i in ids]

    def references(self) -> list[list[list[int]]] | None:
        """For each row of the validation split all right answers, without an end; None: "targets" says it all."""
        return None

    def answer_text(self, ids: Sequence[int]) -> str | None:
        """The text that ids of an answer spell, for scores of texts; None where answers are no running text."""
        return None

    def save(self, folder: Path) -> None:
        """Keep in a run folder what is needed to use a model of this data."""

    def check_saved(self, folder: Path) -> None:
        """Raise DataError unless `folder` keeps what `save` would write."""

    def train_batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict:
        """Part `micro` of `n_micro` of the batch of step `step`: a pure function of the seed and the numbers given.

        Returns the tensors of the task, each with B/n_micro rows, and "n_scored": what is scored in the whole step.
        Raises ConfigError if batch_size is no multiple of n_micro.
        """
        return self.steps().batch(step, micro, n_micro)

    def train_stream(self, n_steps: int, start_step: int = 0) -> TrainStream:
        """Batches of the steps from `start_step` up to, not including, `n_steps`, in order, as planned."""
        return TrainStream(self.steps(), n_steps, start_step, self.n_micro, self.rank, self.world_size)

    def plan(self, n_steps: int, n_micro: int = 1, rank: int = 0, world_size: int = 1) -> None:
        """Say how long the run is (optimizer steps) and in how many parts each batch is given, for the loaders below.

        Args:
            n_steps: optimizer steps.
            n_micro: parts per step and process.
            rank, world_size: number of this process, and how many there are.

        Raises ConfigError if batch_size is no multiple of n_micro * world_size.
        """
        n_tokens = rows_per_part(self.batch_size, n_micro, world_size) * self.seq_len
        if n_tokens * BYTES_PER_TOKEN > total_memory():
            raise ConfigError(
                f"data.batch_size ({self.batch_size}) x data.seq_len ({self.seq_len}) is more than the memory here "
                "holds: choose a smaller one, or let trainer.accumulate divide it"
            )
        self.n_steps = n_steps
        self.n_micro = n_micro
        self.rank = rank
        self.world_size = world_size

    def train_dataloader(self) -> TrainStream:
        """Lightning's entry: the planned run, from the step at which the trainer stands."""
        if self.n_steps is None:
            raise ConfigError("the length of the run is not known: call data.plan(n_steps, n_micro) before training")
        return self.train_stream(self.n_steps, self.trainer.global_step if self.trainer else 0)

    def val_dataloader(self) -> Any:
        """Lightning's entry: the same as `val_batches`."""
        return self.val_batches()
