"""The one LightningModule: it owns optimisation and logging; the mathematics is the model's and the objective's."""

import math
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from minitf.errors import DataError
from minitf.training.guard import Diverged, first_gradient_not_finite, first_not_finite
from minitf.training.processes import first_found, shard
from minitf.training.scores import scores
from minitf.training.seeds import derive_seed, seed_device
from minitf.training.throughput import Throughput, n_tokens

Objective = Callable[[nn.Module, dict[str, Any]], tuple[Tensor, dict[str, Tensor]]]


class Task(L.LightningModule):
    """Train `model` on `objective`; `task.model` works without Lightning.

    The gradient of a step is that of (summed loss / scored tokens of the whole step), however the step is cut
    into micro-batches and spread over processes; only extra losses of parts, which are no sums over tokens, are those
    of each piece. A batch is a dict; "n_scored" (int) is the number of scored
    tokens of its whole step; without it, every micro-batch counts the same.

    Metrics go to the loggers and to `trainer.callback_metrics` by `record`, not by `self.log`: Lightning repeats
    what was once logged in every later step, and pays for it in every later step.

    Args:
        model: any module that the objective understands.
        objective: objective(model, batch) -> (loss, metrics); its `sums` names the metrics that are summed up over
            batches: "nll" (nats), "n_scored", and perhaps what `scores` knows besides.
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
        schedule: Callable[..., LambdaLR],
        seed: int,
        log_every: int,
        val_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = self.plain_objective = objective
        self.seed = seed
        self.log_every = log_every
        self.val_bytes = val_bytes
        self.throughput = Throughput()
        self.grad_norm: Tensor | None = None
        self.recorded_step = -1
        self._lr = 0.0
        self._make_optimizer, self._make_schedule = optimizer, schedule
        self._recording = False
        self._micro_batches: list[tuple[dict[str, Any], int]] = []
        self._step_sums: list[Tensor] = []
        self._loss_sum = torch.zeros(())
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

    def configure_callbacks(self) -> list[Callback]:
        """Record a step before any callback of the kind Checkpoint, which Lightning runs last, saves it."""
        return [_RecordStep()]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the speed, so that a run in parts tells that of all of them."""
        checkpoint["throughput"] = self.throughput.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it over."""
        self.throughput.load_state_dict(checkpoint["throughput"])

    # Training ---------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Start the clock; a run that goes on with another number of steps follows the new schedule at once."""
        self.throughput.start()
        for config in self.trainer.lr_scheduler_configs:
            schedule, optimizer = config.scheduler, config.scheduler.optimizer
            for group, base, factor in zip(optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
                group["lr"] = base * factor(schedule.last_epoch)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """Return the share of one micro-batch in the loss of its step, so scaled that Lightning's mean is right."""
        trainer = self.trainer
        step, n_micro, n_processes = trainer.global_step, trainer.accumulate_grad_batches, trainer.world_size
        micro = batch_idx % n_micro
        seed = derive_seed(self.seed, (step * n_micro + micro) * n_processes + trainer.global_rank)
        seed_device(self.device, seed)
        loss, metrics = self.objective(self.model, batch)
        if micro == 0:
            self._recording = (step + 1) % self.log_every == 0 or step + 1 == trainer.max_steps
            self._micro_batches, self._step_sums, self._loss_sum = [], [], torch.zeros_like(loss)
        self._micro_batches.append((batch, seed))
        self._loss_sum = self._loss_sum + loss.detach()
        self._step_sums.append(self._counted(metrics))
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
        """Check loss and gradient, then clip by norm; the norm from before stays in `self.grad_norm`.

        Raises:
            Diverged: one of them is not finite; Lightning calls this before the optimizer's step, which is not made.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.grad_norm = norm = get_total_norm([p.grad for p in parameters])
        if hasattr(norm, "full_tensor"):  # of sharded gradients
            self.grad_norm = norm.full_tensor()
        # float16 training looks for overflowing gradients itself, and leaves out their step
        overflow_is_normal = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        watched = self._loss_sum if overflow_is_normal else self._loss_sum + self.grad_norm
        if not self._everywhere(math.isfinite(watched)):
            raise self._diverged(optimizer)
        if gradient_clip_val:
            clip_grads_with_norm_(parameters, gradient_clip_val, norm)
        if self._recording:  # the schedule has moved on before on_train_batch_end
            self._lr = optimizer.param_groups[0]["lr"]

    def end_step(self) -> None:
        """Record the step that has been made, if it is one of those that are recorded."""
        if not self._recording:
            return
        trainer = self.trainer
        total = self._total(self._step_sums)
        self.recorded_step = trainer.global_step
        self.record(
            {
                "train/loss": total["nll"] / max(1.0, total["n_scored"]),
                "train/lr": self._lr,
                "train/grad_norm": float(self.grad_norm),
                "train/tokens_per_s": self.throughput.window(),
            }
        )

    def _everywhere(self, good: bool) -> bool:
        """Whether it is so in every process: they must go on, or stop, together."""
        return good if self.trainer.world_size == 1 else self.trainer.strategy.reduce_boolean_decision(good)

    def _diverged(self, optimizer: Optimizer) -> Diverged:
        """Find out where it began, by running the step's forward passes again."""
        step = self.trainer.global_step
        rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(group["lr"] for group in optimizer.param_groups))
        if place := first_found(first_not_finite(self.model, self._run_step_again)):
            where = f"the first output that is not finite is that of {place}"
        elif math.isfinite(self._loss_sum):
            parameter = first_gradient_not_finite(self.model)
            where = f"every output is finite; the trouble begins in the backward pass, at the gradient of {parameter}"
        else:
            where = "it is the loss itself: every output of the model is finite"
        return Diverged(
            f"loss or gradient is not finite in step {step + 1} (learning rate {rates}): {where}. "
            f"The step was not made; the weights after step {step} are kept. "
            "Lower optim.lr, lengthen schedule.warmup_steps, or set trainer.precision=32-true"
        )

    def _run_step_again(self) -> None:
        objective = self.plain_objective
        for batch, seed in self._micro_batches:
            seed_device(self.device, seed)
            with self.trainer.precision_plugin.train_step_context():
                objective(self.model, batch)

    # Validation -------------------------------------------------------------------------------------------

    def on_validation_start(self) -> None:
        """Stop the clock; begin the sums of the split."""
        self.throughput.pause()
        self._val_sums = []

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add one batch to the sums of the split."""
        _, metrics = self.objective(self.model, batch)
        self._val_sums.append(self._counted(metrics))

    def on_validation_epoch_end(self) -> None:
        """Record the loss over the whole split: sums over tokens, whatever the size of the batches."""
        found = scores(self._total(self._val_sums), self.val_bytes)
        self.record({f"val/{name}": value for name, value in found.items()})

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

    def _counted(self, metrics: dict[str, Tensor]) -> Tensor:
        """What is summed up over batches, in the order of the objective's `sums`."""
        return torch.stack([metrics[name] for name in self.plain_objective.sums])

    def _total(self, sums: list[Tensor]) -> dict[str, float]:
        """Add up what `_counted` gave in float64 over batches and processes, by name."""
        # also without a batch of its own: the other processes wait for this one
        nothing = torch.zeros(len(self.plain_objective.sums), dtype=torch.float64)
        total = torch.stack(sums).cpu().double().sum(0) if sums else nothing
        if self.trainer.world_size > 1:
            total = self.trainer.strategy.reduce(total.to(self.device), reduce_op="sum")
        return dict(zip(self.plain_objective.sums, total.tolist(), strict=True))


class _RecordStep(Callback):
    """Count the tokens, and record each step that is complete."""

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: Task,
        outputs: Any,
        batch: dict[str, Any],
        batch_idx: int,
    ) -> None:
        """Tell the task when the last micro-batch of a step is done."""
        pl_module.throughput.add(n_tokens(batch) * trainer.world_size)
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            pl_module.end_step()
