"""Heads: from the last hidden states to what the task asks for.

A head is made by head(d_model=..., vocab_size=..., n_classes=..., tied_to=...) and takes of these what it needs;
`tied_to` is an embedding whose table may serve as its matrix, or None. It is called with hidden states (..., D) and
their positions; only a head that looks at whole rows reads the positions, and then its input is (B,T,D).
"""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.checks import check_positive
from minitf.errors import ConfigError


def check_classes(n_classes: int | None) -> None:
    """Raise ConfigError unless the data has classes."""
    if n_classes is None:
        raise ConfigError(
            "this head chooses among classes, and the data has none (data.n_classes is null): "
            "choose data with labels, or model/head=lm or masked_lm"
        )
    check_positive(n_classes=n_classes)


def read_out(head: nn.Module, hidden: Tensor, memory: Tensor, memory_pos: Tensor | None) -> Tensor:
    """Logits of a model that reads a source.

    Args:
        head: of the model; one with the attribute `reads_memory` points at places of the source.
        hidden: (B,T,D).
        memory, memory_pos: the source (B,S,D) and its positions.

    Returns:
        (B,T,V), or (B,T,S) of a head that points.
    """
    return head(hidden, memory, memory_pos) if getattr(head, "reads_memory", False) else head(hidden)
