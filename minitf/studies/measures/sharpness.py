"""How sharp attention is, and whether its matrices get a gradient."""

from __future__ import annotations

from minitf.analysis.health import health
from minitf.studies.loop import Subject

WORST = {"entropy": min, "median_jacobian": min, "saturated_share": max, "max_logit": max}


def sharpness(subject: Subject) -> dict[str, float]:
    """The worst layer on the first batch of validation, as `minitf.analysis.health` names it.

    Args:
        subject: any with self-attention.

    Returns:
        "entropy", "median_jacobian" (the smallest), "saturated_share", "max_logit" (the largest), and "gradient_w_q"
        and "gradient_w_k" (the largest, so that 0 says all), where there are such matrices.
    """
    layers = [layer.values() for layer in health(subject.model, next(iter(subject.data.val_batches())))]
    of = WORST | {"gradient_w_q": max, "gradient_w_k": max}
    return {name: worst(values) for name, worst in of.items() if (values := [x[name] for x in layers if name in x])}
