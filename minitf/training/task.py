"""The one LightningModule: it owns optimisation and logging; the mathematics is the model's and the objective's."""

import math
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from minitf.errors import DataError
from minitf.training.processes import shard
from minitf.training.throughput import Throughput

Objective = Callable[[nn.Module, dict[str, Any]], tuple[Tensor, dict[str, Tensor]]]


class Task(L.LightningModule):
    """Train `model` on `objective`; `task.model` works without Lightning.

    The gradient of a step is that of (summed loss / scored tokens of the whole step), however the step is cut
    into micro-batches and spread over processes. A batch is a dict; "n_scored" (int) is the number of scored
    tokens of its whole step; without it, every micro-batch counts the same.

    Metrics go to the loggers and to `trainer.callback_metrics` by `record`, not by `self.log`: Lightning repeats
    what was once logged in every later step, and pays for it in every later step.

    Args:
        model: any module that the objective understands.
        objective: objective(model, batch) -> (loss, metrics); metrics hold "nll" (sum, nats) and "n_scored".
        optimizer: factory optimizer(model).
        schedule: factory schedule(optimizer, n_steps); it moves once per optimizer step.
        seed: randomness of a step (dropout) is a function of this and of the step, of nothing before it.
        log_every: training metrics are recorded every so many optimizer steps, and at the last one.
        val_bytes: UTF-8 bytes of the validation split; None: no bits per byte.

    Attributes:
        throughput: tokens/s of training alone.
        grad_norm: norm of the last gradient before clipping; None before the first.
        recorded_step: the step whose training metrics were recorded last; -1 before the first.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Callable[[nn.Module], Optimizer],
        schedule: Callable[..., LRScheduler],
        seed: int,
        log_every: int,
        val_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.seed = seed
        self.log_every = log_every
        self.val_bytes = val_bytes
        self.throughput = Throughput()
        self.grad_norm: Tensor | None = None
        self.recorded_step = -1
        self.objective_is_compiled = False
        self._lr = 0.0
        self._make_optimizer, self._make_schedule = optimizer, schedule
        self._recording = False
        self._step_sums: list[Tensor] = []
        self._val_sums: list[Tensor] = []

    def configure_model(self) -> None:
        """Spread the model over the processes where the strategy wants that (trainer=fsdp)."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy) and not hasattr(self.model, "unshard"):
            shard(self.model, self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> dict[str, Any]:
        """Build the optimizer and its schedule, in optimizer steps (Lightning's default is epochs)."""
        optimizer = self._make_optimizer(self.model)
        schedule = self._make_schedule(optimizer, n_steps=self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    # Training ---------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Start the clock."""
        self.throughput.start()

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the share of one micro-batch in the loss of its step, so scaled that Lightning's mean is right."""
        trainer = self.trainer
        step, n_micro, n_processes = trainer.global_step, trainer.accumulate_grad_batches, trainer.world_size
        micro = batch_idx % n_micro
        index = (step * n_micro + micro) * n_processes + trainer.global_rank
        seed_device(self.device, derive_seed(self.seed, index))
        loss, metrics = self.objective(self.model, batch)
        if micro == 0:
            self._recording = (step + 1) % self.log_every == 0 or step + 1 == trainer.max_steps
            self._step_sums = []
        if self._recording:
            self._step_sums.append(torch.stack([metrics["nll"], metrics["n_scored"]]))
        if "n_scored" in batch:
            # Lightning takes the mean over the micro-batches and over the processes; this undoes both
            loss = loss * (metrics["n_scored"] * (n_micro * n_processes / batch["n_scored"]))
        return loss

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by norm, and keep the norm from before in `self.grad_norm`: it is computed once for both."""
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if gradient_clip_val:
            self.grad_norm = clip_grad_norm_(parameters, gradient_clip_val)
        elif self._recording:
            self.grad_norm = get_total_norm([p.grad for p in parameters])
        if hasattr(self.grad_norm, "full_tensor"):  # of sharded gradients
            self.grad_norm = self.grad_norm.full_tensor()
        if self._recording:  # the schedule has moved on before on_train_batch_end
            self._lr = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(self, outputs: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Count the tokens; after the last micro-batch of a step that is recorded, record it."""
        trainer = self.trainer
        self.throughput.add(batch["ids"].numel() * trainer.world_size)
        if self._recording and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            nll, n_scored = self._total(self._step_sums)
            self.recorded_step = trainer.global_step
            self.record(
                {
                    "train/loss": nll / max(1.0, n_scored),
                    "train/lr": self._lr,
                    "train/grad_norm": float(self.grad_norm),
                    "train/tokens_per_s": self.throughput.window(),
                }
            )

    # Validation -------------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        """Stop the clock; begin the sums of the split."""
        self.throughput.pause()
        self._val_sums = []

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add one batch to the sums of the split."""
        _, metrics = self.objective(self.model, batch)
        self._val_sums.append(torch.stack([metrics["nll"], metrics["n_scored"]]))

    def on_validation_epoch_end(self) -> None:
        """Record the loss over the whole split: sums over tokens, whatever the size of the batches."""
        nll, n_scored = self._total(self._val_sums)
        if n_scored == 0:
            raise DataError("the validation split holds no scored token; use more data or a larger val_fraction")
        metrics = {"val/loss": nll / n_scored}
        if self.val_bytes:
            metrics["val/bits_per_byte"] = nll / math.log(2) / self.val_bytes
        self.record(metrics)

    def on_validation_end(self) -> None:
        """Start the clock again; callbacks, which write checkpoints here, have run before."""
        self.throughput.resume()

    # Metrics ----------------------------------------------------------------------------------------------

    def record(self, metrics: dict[str, float]) -> None:
        """Hand numbers to every logger and to the callbacks, at the number of optimizer steps done.

        Args:
            metrics: name -> value.
        """
        trainer = self.trainer
        if trainer.sanity_checking:
            return
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in metrics.items()})
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
        broken = {name: value for name, value in metrics.items() if not math.isfinite(value)}
        if broken:
            raise DataError(
                f"{broken} after step {trainer.global_step}: the training has diverged. "
                "Lower optim.lr, or lengthen schedule.warmup_steps"
            )

    def _total(self, sums: list[Tensor]) -> list[float]:
        """Add up pairs (nll, n_scored) in float64 over batches and processes."""
        # also without a batch of its own: the other processes wait for this one
        total = torch.stack(sums).cpu().double().sum(0) if sums else torch.zeros(2, dtype=torch.float64)
        if self.trainer.world_size > 1:
            total = self.trainer.strategy.reduce(total.to(self.device), reduce_op="sum")
        return total.tolist()


def seed_device(device: torch.device, seed: int) -> None:
    """Seed the generators that a computation on `device` draws from.

    torch.manual_seed also queues a call, with a stack trace, for each kind of device that has not been used:
    half a millisecond per step, and memory that is never given back.

    Args:
        device: where the model is.
        seed: 0 to 2**63 - 1.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def derive_seed(seed: int, index: int) -> int:
    """Mix a seed with a counter into 63 well-spread bits (the finaliser of SplitMix64, Steele et al. 2014).

    Args:
        seed: the run's seed.
        index: which draw: 0, 1, 2, ...
    """
    z = (seed * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


_MASK = (1 << 64) - 1
