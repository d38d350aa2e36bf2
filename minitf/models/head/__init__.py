"""Heads: from the last hidden states to what the task asks for.

A head is made by head(d_model=..., vocab_size=..., n_classes=..., tied_to=...) and takes of these what it needs;
`tied_to` is an embedding whose table may serve as its matrix, or None. It is called with hidden states (..., D) and
their positions; only a head that looks at whole rows reads the positions, and then its input is (B,T,D).
"""

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
