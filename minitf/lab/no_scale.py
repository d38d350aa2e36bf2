"""Mistake: the scale is forgotten."""

from __future__ import annotations

from minitf.blocks.score.dot import Dot


class NoScale(Dot):
    """softmax(q @ k.T) without the factor 1/sqrt(d_head).

    Written by mistake: a line copied from the formula of a dot-product attention that has no scale.

    Symptom: with queries and keys of variance 1 the scores start with a deviation of sqrt(d), softmax is sharp,
    and little is learned: accuracy 0.27 to 0.39 in place of 0.99, loss 1.98 to 2.19 in place of 0.02. With weights that
    start small (model/init=gpt2) nothing is felt in this toy: loss 0.0005, accuracy 1.0. T5 leaves the scale out on
    purpose, and starts its queries small instead.

    Named by: scores of queries and keys with variance 1 have a deviation of sqrt(d), and the model's own are as wide.
    """
