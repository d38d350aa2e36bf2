"""Feed-forward networks: what a block does to each token on its own."""

from torch import Tensor, nn

from minitf.blocks.checks import check_positive
from minitf.tap import Tappable


class FeedForward(Tappable):
    """w_out(activation(w_in(x))).

    Args:
        d_model: width D.
        d_ff: width of the hidden layer; null means 4 * d_model.
        bias: add biases.

    Source: Vaswani et al. 2017, section 3.3.
    """

    tap_points = ("hidden",)

    def __init__(self, *, d_model: int, d_ff: int | None = None, bias: bool = False) -> None:
        super().__init__()
        d_ff = self.default_width(d_model) if d_ff is None else d_ff
        check_positive(d_ff=d_ff)
        self.w_in = nn.Linear(d_model, d_ff, bias=bias)
        self.w_out = nn.Linear(d_ff, d_model, bias=bias)

    @staticmethod
    def default_width(d_model: int) -> int:
        """Width of the hidden layer where none is given."""
        return 4 * d_model

    @property
    def residual_output(self) -> nn.Linear:
        return self.w_out

    def hidden(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,d_ff), after the activation."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        hidden = self.hidden(x)
        if self.tap is not None:
            hidden = self.tap("hidden", hidden)
        return self.w_out(hidden)


class GatedFeedForward(FeedForward):
    """w_out(gate(w_gate(x)) * w_in(x)).

    d_ff: null means 8/3 * d_model, rounded up to a multiple of 8: as many parameters as two matrices with 4 * d_model.

    Source: Shazeer 2020, equation 6.
    """

    def __init__(self, *, d_model: int, d_ff: int | None = None, bias: bool = False) -> None:
        super().__init__(d_model=d_model, d_ff=d_ff, bias=bias)
        self.w_gate = nn.Linear(d_model, self.w_in.out_features, bias=bias)

    @staticmethod
    def default_width(d_model: int) -> int:
        return 8 * -(-d_model // 3)

    def gate(self, x: Tensor) -> Tensor:
        """What w_gate gives -> what w_in gives is multiplied by."""
        raise NotImplementedError

    def hidden(self, x: Tensor) -> Tensor:
        return self.gate(self.w_gate(x)) * self.w_in(x)
