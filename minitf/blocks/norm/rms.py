"""Root-mean-square normalisation."""

from torch import Tensor, nn

from minitf.blocks.checks import check_above


class RMSNorm(nn.RMSNorm):
    """Divide by the root mean square, scale. Source: Zhang and Sennrich 2019."""

    def __init__(self, d_model: int, *, eps: float = 1e-5) -> None:
        check_above(0, "1e-5 is usual", **{"norm eps": eps})
        super().__init__(d_model, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D), in the same dtype; computed in that of the gain, which autocast leaves wide."""
        if x.dtype == self.weight.dtype:
            return super().forward(x)
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)
