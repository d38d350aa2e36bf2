"""Projections: where q, k and v come from, and how heads are cut out of d_model."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Projection(nn.Module):
    """The interface of every projection; it owns the head layout (B,T,D) <-> (B,H,T,d).

    Args:
        d_model: width D of the residual stream.
        n_heads, n_kv_heads: query heads H, key/value heads G.
        d_head: width d of queries and keys.
        d_value: width d_v of values.

    Attributes:
        reads_previous: whether a key depends on the token before it, see `mix_keys`.

    A block that writes into the residual stream names its last matrix `residual_output`, for the initialisation.
    """

    reads_previous: ClassVar[bool] = False

    def __init__(self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_value: int) -> None:
        super().__init__()
        self.d_model, self.n_heads, self.n_kv_heads, self.d_head, self.d_value = (
            d_model,
            n_heads,
            n_kv_heads,
            d_head,
            d_value,
        )

    def q(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,H,T,d)."""
        raise NotImplementedError

    def k(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d)."""
        raise NotImplementedError

    def v(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d_v)."""
        raise NotImplementedError

    def mix_keys(self, k: Tensor, k_pos: Tensor) -> Tensor:
        """Keys that are attended, from all that are held (after rotation); by default the same.

        Args:
            k: (B,G,S,d).
            k_pos: (B or 1, S) their positions.
        """
        return k

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        """What goes back into the residual stream.

        Args:
            heads: (B,H,T,d_v), what each head has read.
            x: (B,T,D), what the queries were made from.

        Returns:
            (B,T,D).
        """
        raise NotImplementedError


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B,T,H*d) -> (B,H,T,d): head h owns the features h*d to (h+1)*d."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """(B,H,T,d) -> (B,T,H*d), the inverse of `split_heads`."""
    return heads.transpose(1, 2).flatten(-2)
