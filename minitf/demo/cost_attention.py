"""What attention costs, by formula: its matrices, scores, weights, and what is read."""

from __future__ import annotations

from dataclasses import replace

from torch import nn
from torch.nn.utils import parametrize

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.init.sigma_reparam import SpectralScale
from minitf.blocks.latent import LatentAttention, LatentProjection
from minitf.blocks.normalize import Normalize
from minitf.blocks.normalize.sink import Sink
from minitf.blocks.projection import Projection
from minitf.blocks.projection.identity import Identity
from minitf.blocks.projection.mean import Mean
from minitf.blocks.projection.smeared import Smeared
from minitf.blocks.projection.tied_qk import TiedQK
from minitf.demo.cost import Cost, Sizes, if_counted, matrix, of_norm
from minitf.demo.cost_score import of_score
from minitf.models.recurrent.alignment import Alignment


def of_attention(block: nn.Module, B: int, T: int, S: int) -> Cost | None:
    """The cost of an attention block that reads S keys for T queries; None: there is no formula for its parts."""
    if getattr(block, "absent", False):
        return Cost()
    n = sizes(block, B, T, S)
    if n is None:
        return None
    own = [of_projection(block.projection, n), of_score(block.score, n), of_normalize(block.normalize, n)]
    if None in own:
        return None
    norms = of_norm(block.q_norm, n.d) + of_norm(block.k_norm, n.d)
    return if_counted(sum(own, norms + weighted_sum(n) + _of_absorbing(block, n)), block)


def sizes(block: nn.Module, B: int, T: int, S: int) -> Sizes | None:
    """The sizes of an attention block that reads S keys for T queries; None where it has no such sizes."""
    if not isinstance(block, MultiHeadAttention):
        return None
    p = block.projection
    kept = p.d_latent + p.d_rotary if isinstance(p, LatentProjection) else None
    return Sizes(B=B, T=T, S=S, D=p.d_model, H=p.n_heads, G=p.n_kv_heads, d=p.d_head, d_v=p.d_value, kept=kept)


def weighted_sum(n: Sizes) -> Cost:
    """The values times their weights, for every query."""
    return Cost(flops=2 * n.B * n.H * n.T * n.S * n.d_v)


def _of_absorbing(block: nn.Module, n: Sizes) -> Cost:
    """What it takes more to read latents than keys and values; less, if this is done at all."""
    if not (isinstance(block, LatentAttention) and block.absorbs(n.T, n.S)):
        return Cost()
    p = block.projection
    of_matrices = (n.T - n.S) * p.d_latent * (p.d_fixed + n.d_v)  # over the queries now, not over the keys
    of_pairs = n.T * n.S * (2 * n.kept - n.d - n.d_v)
    return Cost(flops=2 * n.B * n.H * (of_matrices + of_pairs))


def of_normalize(normalize: Normalize, n: Sizes) -> Cost | None:
    """No rule multiplies matrices; one has a learned sink for each head."""
    return if_counted(Cost(params=n.H if isinstance(normalize, Sink) else 0), normalize)


def of_projection(projection: Projection, n: Sizes) -> Cost:
    """The matrices that there are, each over the tokens that go through it."""
    shapes, total = matrix_shapes(projection, n), Cost()
    for name, rows in _passes(projection, n):
        linear = getattr(projection, name)
        total += Cost(flops=matrix(rows, *shapes[name]).flops) + _of_scale(linear, *shapes[name])
    for name, shape in shapes.items():
        linear = getattr(projection, name)
        scales = 1 if _has_scale(linear) else 0
        total += Cost(params=matrix(0, *shape, linear.bias is not None).params + scales)
    if isinstance(projection, LatentProjection):
        total += of_norm(projection.kv_norm, projection.d_latent) + of_norm(projection.q_norm, shapes["w_q"][0])
    return total + Cost(params=n.G if isinstance(projection, Smeared) else 0)


def matrix_shapes(projection: Projection, n: Sizes) -> dict[str, tuple[int, int]]:
    """Name -> (inputs, outputs) of the matrices that a projection has."""
    heads, shared, values = n.H * n.d, n.G * n.d, n.H * n.d_v
    merged = n.d_v if isinstance(projection, Mean) else values
    shapes = {"w_q": (n.D, heads), "w_k": (n.D, shared), "w_v": (n.D, n.G * n.d_v), "w_gate": (n.D, values)}
    shapes["w_o"] = (merged, n.D)
    if isinstance(projection, LatentProjection):
        p, queries = projection, projection.d_query_latent or n.D
        shapes |= {"w_q_down": (n.D, queries), "w_q": (queries, heads), "w_kv_down": (n.D, p.d_latent)}
        shapes |= {"w_k_rotary": (n.D, p.d_rotary), "w_k": (p.d_latent, n.H * (n.d - p.d_rotary))}
        shapes |= {"w_v": (p.d_latent, values)}
    return {name: shape for name, shape in shapes.items() if hasattr(projection, name)}


def can_share_heads(projection: Projection) -> bool:
    """Whether several query heads may read one key/value head."""
    return not isinstance(projection, TiedQK | Identity)


def _passes(projection: Projection, n: Sizes) -> list[tuple[str, int]]:
    """Which matrix is used for how many tokens; one that makes queries and keys is used twice."""
    queries, keys = n.B * n.T, n.B * n.S
    of_k = "w_q" if isinstance(projection, TiedQK) else "w_k"
    used = [("w_q_down", queries), ("w_q", queries), ("w_kv_down", keys), ("w_k_rotary", keys)]
    used += [(of_k, keys), ("w_v", keys), ("w_gate", queries), ("w_o", queries)]
    return [(name, rows) for name, rows in used if hasattr(projection, name)]


def _has_scale(linear: nn.Linear) -> bool:
    """Whether model/init=sigma_reparam has been there."""
    return parametrize.is_parametrized(linear) and isinstance(linear.parametrizations.weight[0], SpectralScale)


def _of_scale(linear: nn.Linear, d_in: int, d_out: int) -> Cost:
    """The largest singular value, found at each use: one row times the matrix, and that row needs no gradient."""
    flops = 2 * d_in * d_out if _has_scale(linear) else 0
    return Cost(flops=flops, spared=flops)


def alignment_sizes(B: int, T: int, S: int, d_model: int) -> Sizes:
    """The sizes of the attention of a recurrent model: one head, whose keys and values are the memory."""
    return Sizes(B=B, T=T, S=S, D=d_model, H=1, G=1, d=d_model, d_v=d_model)


def of_alignment(block: Alignment, n: Sizes, in_steps: bool) -> Cost | None:
    """The cost of the attention of a recurrent model; None: there is no formula for its score.

    Args:
        block: the alignment.
        n: its sizes.
        in_steps: a state is known only when the one before it has read, so all is done again for each query, but what
            is made of the keys alone.
    """
    each = replace(n, T=1) if in_steps else n
    own = [of_score(block.score, each), of_normalize(block.normalize, each)]
    if None in own:
        return None
    total = sum(own, weighted_sum(each))
    if in_steps:
        again = (n.T - 1) * matrix(n.B * n.S, n.d, n.d).flops if block.projects else 0
        total = total * n.T + Cost(flops=-again)
    return if_counted(total, block)
