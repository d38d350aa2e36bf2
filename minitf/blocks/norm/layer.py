"""Layer normalisation."""

from torch import nn

from minitf.blocks.checks import check_above


class LayerNorm(nn.LayerNorm):
    """Subtract the mean, divide by the standard deviation, scale and shift. Source: Ba et al. 2016."""

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        check_above(0, "1e-5 is usual", **{"norm eps": eps})
        super().__init__(d_model, eps=eps)
