"""When the health of a layer deserves a word, and which: thresholds, and one plain line for each that is passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitf.analysis.health import LayerHealth

MAX_LOGIT = 200.0  # rising above it while the loss is flat: healthy runs stay below 60 (220 with the norm after)
FLAT = 0.02  # a loss is flat if it has not fallen by this share since the last measurement
RELATIVE_RESIDUAL = 0.01  # below it tokens are alike; a healthy stack keeps 0.4 and more
TOKEN_COSINE = 0.99  # above it tokens point the same way
SATURATED_SHARE = 0.5  # above it most rows of attention pass no gradient to their scores
ENTROPY = 0.05  # below it every head of a layer has collapsed onto one key
HEADS_ALIKE = 1e-14  # bits: copies have 1e-16, by rounding; heads that only just begin to differ 1e-12 and more
DEAD_GRADIENT = 1e-6  # of that of w_v: below it neither w_q nor w_k learns anything


class Alarms:
    """Say what is wrong, once until it recovers.

    A sharp head is no fault by itself: a task can be solved by one-hot attention. So the lines say what was measured.
    """

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._logits: dict[str, float] = {}
        self._loss: float | None = None
        self._copies: set[str] = set()

    def __call__(self, layers: Sequence[LayerHealth], loss: float | None = None) -> list[str]:
        """Take in a measurement; returns the lines that are new, in the order of the layers.

        Args:
            layers: what `health` gave.
            loss: mean training loss since the last measurement; None: not known.
        """
        flat = None not in (loss, self._loss) and loss > (1 - FLAT) * self._loss
        lines = []
        for layer in layers:
            for rule, (text, recovered) in self._rules(layer, flat).items():
                key = f"{layer.name}: {rule}"
                if text is not None and key not in self._active:
                    self._active.add(key)
                    lines.append(f"{layer.name}: {text}")
                elif recovered:
                    self._active.discard(key)
        self._copies = {layer.name for layer in layers if _copies(layer.head_divergence)}
        self._logits |= {layer.name: layer.max_logit for layer in layers if layer.max_logit is not None}
        self._loss = self._loss if loss is None else loss
        return lines

    def state_dict(self) -> dict[str, Any]:
        """What is active, and what was measured last: plain values."""
        return {
            "active": sorted(self._active),
            "logits": dict(self._logits),
            "loss": self._loss,
            "copies": sorted(self._copies),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, so that a resumed run says nothing twice."""
        self._active, self._logits, self._loss = set(state["active"]), dict(state["logits"]), state["loss"]
        self._copies = set(state.get("copies", ()))  # a run may have begun when there was no such rule

    def _rules(self, layer: LayerHealth, flat: bool) -> dict[str, tuple[str | None, bool]]:
        """For each rule its line, None where there is nothing to say, and whether all is well again."""
        found = {
            "alike": _alike(layer.relative_residual),
            "saturated": _saturated(layer.saturated_share),
            "entropy": _collapsed(layer.entropy),
            "gradient": _dead(layer.gradients),
        }
        rules = {name: (text, text is None) for name, text in found.items()}
        # a start with one matrix of zeros has equal heads, too, but leaves it at once
        text = f"all heads do the same: their patterns differ by {short(layer.head_divergence or 0)} bits"
        copies = _copies(layer.head_divergence)
        rules["heads"] = (text if copies and layer.name in self._copies else None, not copies)
        text = _same_way(layer.token_cosine)  # alike tokens do so too, which needs no second line
        rules["cosine"] = (text if found["alike"] is None else None, text is None)
        logit = layer.max_logit
        if logit is not None:
            rising = logit > self._logits.get(layer.name, logit)
            text = f"scores explode: max logit {logit:.0f} and rising while the loss is flat"
            rules["logit"] = (text if logit > MAX_LOGIT and rising and flat else None, logit <= MAX_LOGIT)
        return rules


def short(value: float) -> str:
    """A number in a few characters: "0.43", "2e-5"."""
    if value == 0:
        return "0"
    return f"{value:.2g}" if abs(value) >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def _alike(residual: float | None) -> str | None:
    if residual is None or residual >= RELATIVE_RESIDUAL:
        return None
    return f"all tokens look alike: relative residual {short(residual)}"


def _same_way(cosine: float | None) -> str | None:
    if cosine is None or cosine <= TOKEN_COSINE:
        return None
    return f"all tokens point the same way: token cosine {cosine:.4f}"


def _saturated(share: float | None) -> str | None:
    if share is None or share <= SATURATED_SHARE:
        return None
    return f"{share:.0%} of the rows of attention give one key more than 0.99: no gradient reaches their scores"


def _collapsed(entropy: float | None) -> str | None:
    if entropy is None or entropy >= ENTROPY:
        return None
    return f"every head looks at one key only: entropy {short(entropy)} of the largest possible"


def _copies(divergence: float | None) -> bool:
    return divergence is not None and divergence < HEADS_ALIKE


def _dead(gradients: dict[str, float]) -> str | None:
    names = [name for name in ("w_q", "w_k") if name in gradients]
    limit = DEAD_GRADIENT * gradients.get("w_v", 0.0)
    if not names or limit == 0 or any(gradients[name] > limit for name in names):
        return None
    what = " and ".join(f"{name} {short(gradients[name])}" for name in names)
    return f"attention learns nothing about where to look: gradient of {what}, of w_v {short(gradients['w_v'])}"
