"""The embedding: from token ids to vectors."""

from torch import Tensor, nn

from minitf.blocks.checks import check_finite, check_memory, check_positive
from minitf.errors import ConfigError


class Embedding(nn.Embedding):
    """A table with one vector per token, multiplied by d_model to some power.

    Args:
        vocab_size: number of tokens V.
        d_model: width D.
        n_layers: layers of the whole model; a model that cannot fit into memory is refused here, before it is made.
        power: 0.0 leaves the vectors as they are; 0.5 multiplies them by sqrt(d_model).

    Raises:
        ConfigError: sizes below 1, or beyond the memory; a power beyond 2.

    Source of the factor: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocab_size: int, d_model: int, n_layers: int, power: float = 0.0) -> None:
        check_positive(vocab_size=vocab_size, d_model=d_model, n_layers=n_layers)
        n_params = d_model * (vocab_size + 4 * d_model * n_layers)  # about; never too many
        check_memory(n_params, f"a model of d_model={d_model}, n_layers={n_layers}")
        super().__init__(vocab_size, d_model)
        self.factor = power_of(d_model, embedding_power=power)

    def forward(self, ids: Tensor) -> Tensor:
        """int64 (B,T) -> (B,T,D)."""
        x = super().forward(ids)
        return x if self.factor == 1.0 else x * self.factor


def power_of(d_model: int, **power: float) -> float:
    """d_model to the named power. Raises ConfigError where it is no number from -2 to 2."""
    check_finite(**power)
    ((name, value),) = power.items()
    if abs(value) > 2:
        raise ConfigError(f"{name} must lie between -2 and 2, got {value!r}: 0.5 is sqrt(d_model), 0 switches it off")
    return d_model**value
