"""Projections: where q, k and v come from, and how heads are cut out of d_model."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from minitf.errors import ConfigError


class Projection(nn.Module):
    """The interface of every projection; it owns the head layout (B,T,D) <-> (B,H,T,d).

    Args:
        d_model: width D of the residual stream.
        n_heads, n_kv_heads: query heads H, key/value heads G.
        d_head: width d of queries and keys.
        d_value: width d_v of values.

    Attributes:
        reads_previous: whether a key depends on the token before it, see `mix_keys`.

    Its matrices are called w_q, w_k, w_v and w_o; one that it does without is not there.
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
        self.check()

    def check(self) -> None:
        """Raise ConfigError if the sizes do not fit this projection."""

    def q(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,H,T,d)."""
        raise NotImplementedError

    def k(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d)."""
        raise NotImplementedError

    def v(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d_v)."""
        raise NotImplementedError

    def kv(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """(B,S,D) -> keys (B,G,S,d) and values (B,G,S,d_v)."""
        return self.k(source), self.v(source)

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B,T,D) -> queries (B,H,T,d), keys (B,G,T,d) and values (B,G,T,d_v) of the same tokens."""
        return self.q(x), *self.kv(x)

    def mix_keys(self, k: Tensor, k_pos: Tensor) -> Tensor:
        """Keys that are attended, from all that are held (after rotation); by default the same.

        Args:
            k: (B,G,S,d), in the order of their positions.
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

    def by_head(self) -> dict[str, Tensor]:
        """The matrices that have a slice per head: name -> view (heads, rows, columns) of the weight.

        Writing into a view changes the matrix.
        """
        return {}


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B,T,H*d) -> (B,H,T,d): head h owns the features h*d to (h+1)*d."""
    b, t, width = x.shape
    return x.view(b, t, n_heads, width // n_heads).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """(B,H,T,d) -> (B,T,H*d), the inverse of `split_heads`."""
    return heads.transpose(1, 2).flatten(-2)


def check_cut(projection: Projection) -> None:
    """Raise ConfigError unless x itself can be cut into n_heads queries of width d_head."""
    p = projection
    if p.n_heads * p.d_head != p.d_model:
        raise ConfigError(
            f"projection={type(p).__name__} cuts x itself into queries, so n_heads x d_head ({p.n_heads} x {p.d_head}) "
            f"must be d_model ({p.d_model}): leave d_head null, or take projection=free"
        )


def check_same_width(projection: Projection) -> None:
    """Raise ConfigError unless values are as wide as keys."""
    p = projection
    if p.d_value != p.d_head:
        raise ConfigError(
            f"projection={type(p).__name__} reads keys as values, so d_value ({p.d_value}) must be d_head "
            f"({p.d_head}): leave d_value null, or take projection=free"
        )


def check_same_heads(projection: Projection) -> None:
    """Raise ConfigError unless there are as many key heads as query heads."""
    p = projection
    if p.n_kv_heads != p.n_heads:
        raise ConfigError(
            f"projection={type(p).__name__} makes queries and keys alike, so n_kv_heads ({p.n_kv_heads}) must be "
            f"n_heads ({p.n_heads}): leave n_kv_heads null, or take projection=free"
        )
