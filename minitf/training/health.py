"""Health while training: measured now and then, logged like any metric, and one line where something goes wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from minitf.analysis.alarms import Alarms
from minitf.analysis.forward import rows_of
from minitf.analysis.health import LayerHealth, health, projections
from minitf.analysis.places import Place, places
from minitf.errors import ConfigError


class Health(Callback):
    """Measure the first rows of the batch of every so many steps, after the step, in evaluation mode.

    Training does not change by a bit: nothing random is drawn, and the gradients that are looked at are those of the
    step. Values go to the loggers as health/MEASURE.LAYER, such as health/relative_residual.5; step 0 is the model as
    it was made. Lines come from the process that logs.

    Args:
        every: steps from one measurement to the next; the last step is measured too.
        rows: of the batch that are read.

    Raises:
        ConfigError: a number below 1.
    """

    def __init__(self, every: int = 100, rows: int = 4) -> None:
        for name, value in (("health_every", every), ("health_rows", rows)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"callbacks.{name} ({value!r}) must be a whole number of at least 1")
        self.every, self.rows = every, rows
        self._alarms = Alarms()
        self._gradients: dict[tuple[str, int], dict[str, Tensor]] = {}
        self._loss_sum: Tensor | float = 0.0
        self._n_losses = 0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Measure the untrained model."""
        if trainer.global_step == 0 and batch_idx == 0:
            self._measure(trainer, pl_module, batch)

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        """Look at the gradients of the step, before they are clipped."""
        self._gradients = {}
        if not (self._due(trainer, trainer.global_step + 1) and _takes_part(trainer, pl_module)):
            return
        model = pl_module.model
        for place in places(model):
            if place.site:
                found = projections(model, place.site)
                self._gradients[_key(place)] = {
                    name: _norm(p.grad) for name, p in found.items() if p.requires_grad and p.grad is not None
                }

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Measure after a step for which it is time."""
        self._loss_sum, self._n_losses = self._loss_sum + outputs["loss"].detach().float(), self._n_losses + 1
        complete = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if complete and self._due(trainer, trainer.global_step):
            self._measure(trainer, pl_module, batch)

    def state_dict(self) -> dict[str, Any]:
        """What has been said, and the losses since the last measurement."""
        return {"alarms": self._alarms.state_dict(), "loss": float(self._loss_sum), "n_losses": self._n_losses}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on as if there had been no break."""
        self._alarms.load_state_dict(state_dict["alarms"])
        self._loss_sum, self._n_losses = state_dict["loss"], state_dict["n_losses"]

    def _due(self, trainer: L.Trainer, step: int) -> bool:
        return step % self.every == 0 or step == trainer.max_steps

    def _measure(self, trainer: L.Trainer, task: L.LightningModule, batch: dict[str, Any]) -> None:
        loss = float(self._loss_sum) / self._n_losses if self._n_losses else None
        self._loss_sum, self._n_losses = 0.0, 0
        if not _takes_part(trainer, task):
            return
        with task.throughput.paused():
            layers = health(task.model, rows_of(batch, 0, self.rows), gradients=False)
            layers = [self._with_gradients(one) for one in layers]
        values = {f"health/{name}.{one.place}": value for one in layers for name, value in one.values().items()}
        # one that is not finite is the training's own trouble, which it reports itself
        task.record({name: value for name, value in values.items() if math.isfinite(value)})
        bar = trainer.progress_bar_callback
        for line in self._alarms(layers, loss):
            if trainer.is_global_zero:
                text = f"step {trainer.global_step}: {line}"
                bar.print(text) if bar is not None else print(text, flush=True)

    def _with_gradients(self, one: LayerHealth) -> LayerHealth:
        found = self._gradients.get((one.kind, one.layer), {})
        return replace(one, gradients={name: float(value) for name, value in found.items()})


def _key(place: Place) -> tuple[str, int]:
    return place.kind, place.layer


def _takes_part(trainer: L.Trainer, task: L.LightningModule) -> bool:
    """A model that is spread over the processes needs all of them for a pass; else process 0 does it alone."""
    return trainer.is_global_zero or hasattr(task.model, "unshard")


def _norm(gradient: Tensor) -> Tensor:
    norm = gradient.detach().float().norm()
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
