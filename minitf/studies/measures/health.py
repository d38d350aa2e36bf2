"""Is the model well? Its tokens, scores and gradients."""

from __future__ import annotations

import math

from minitf.analysis.health import LayerHealth
from minitf.analysis.health import health as measured
from minitf.studies.loop import Subject
from minitf.studies.measures.sample import joined

ROWS = 64
FLOOR = 1e-6  # of a relative residual in float32, where rounding has taken over


def health(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """The worst of all layers, so far as the model has such a thing.

    Args:
        subject: any with self-attention; its rows are all as long.
        rows: of the validation split.

    Returns:
        "token_cosine" and "relative_residual" after the last layer; "max_logit", the largest of all layers;
        "lowest_entropy", of the head where it is lowest, divided by that of the visible keys; "gradient_w_q", the
        largest norm of all layers.
    """
    layers = layers_of(subject, rows)
    largest = {
        "max_logit": [layer.max_logit for layer in layers],
        "gradient_w_q": [layer.gradients.get("w_q") for layer in layers],
    }
    found = {
        "token_cosine": layers[-1].token_cosine,
        "relative_residual": layers[-1].relative_residual,
        "lowest_entropy": min(layer.lowest_entropy for layer in layers),
        **{name: max(values) for name, values in largest.items() if None not in values},
    }
    return {name: value for name, value in found.items() if value is not None}


def by_layer(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """How the relative residual falls with depth.

    Args:
        subject: any with self-attention; its rows are all as long.
        rows: of the validation split.

    Returns:
        "residual.l", after layer l from 1 on, and "log_growth": by how much its logarithm is multiplied at the last
        layer above the floor of float32. A residual that falls by the same factor in each layer has l / (l - 1) there.
    """
    residuals = [layer.relative_residual for layer in layers_of(subject, rows)]
    above = [math.log(value) for value in residuals if value > FLOOR]
    found = {f"residual.{number}": value for number, value in enumerate(residuals, 1)}
    return found | ({"log_growth": above[-1] / above[-2]} if len(above) > 1 else {})


def layers_of(subject: Subject, rows: int) -> list[LayerHealth]:
    """The health of each layer, over validation rows."""
    return measured(subject.model, joined(subject, rows))
