"""Models before their first step, and blocks with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minitf.analysis.health import health
from minitf.analysis.sites import sites
from minitf.config import build, compose
from minitf.studies.loop import Subject, prepare
from minitf.tap import Tap

DECODER = (
    *("data=repeat", "data.n_val=64", "task=answer"),
    *("model=gpt_tiny", "model/position=rope", "model/ffn=none", "model.n_layers=1", "model.tie_embeddings=false"),
)
ENCODER = (
    *("data=reverse", "data.task.form=tag", "data.n_val=64", "task=tag"),
    *("model=bert_tiny", "model/head=tag", "model/layer=pre_norm", "model/ffn=none", "model/init=unit_variance"),
    *("model.embedding_norm=null", "model.tie_embeddings=false"),
)


def state(
    seed: int,
    init: str,
    overrides: Sequence[str] = (),
    d_model: int = 512,
    n_heads: int = 8,
    seq_len: int = 32,
) -> dict[str, float]:
    """What the attention of a one-layer model looks like before training.

    Args:
        seed: of the weights.
        init: name of an option of model/init.
        overrides: further ones.
        d_model, n_heads: of the model.
        seq_len: tokens of a row.

    Returns:
        Of the layer, as `minitf.analysis.health` names them: "entropy" (1 uniform), "median_jacobian",
        "saturated_share", "gradient_w_q", "gradient_w_k", "gradient_w_v", "gradient_w_o"; "score_std", of the scores
        before the mask; and "to_mean", the distance of what the heads read from the mean of all visible values, as a
        share of its size.
    """
    sizes = [f"model.d_model={d_model}", f"model.attention.n_heads={n_heads}", f"data.seq_len={seq_len}"]
    subject = prepare(
        compose("train", [*DECODER, *sizes, f"model/init={init}", *overrides, f"seed={seed}"]), paired=True
    )
    batch = next(iter(subject.data.val_batches()))
    found = health(subject.model, batch)[0].values()
    wanted = ("entropy", "median_jacobian", "saturated_share")
    kept = {name: value for name, value in found.items() if name in wanted or name.startswith("gradient_")}
    return {**kept, **_scores(subject, batch)}


@torch.no_grad()
def _scores(subject: Subject, batch: dict[str, torch.Tensor]) -> dict[str, float]:
    site = sites(subject.model)[0]
    with Tap(subject.model.eval(), at=[site.point(name) for name in ("scores", "heads", "v")]) as tap:
        subject.model(batch["ids"])
    v = tap[site.point("v")]
    so_far = v.cumsum(2) / torch.arange(1, v.size(2) + 1)[:, None]
    late = slice(4, None)  # the first rows see few keys
    apart = (tap[site.point("heads")] - so_far)[:, :, late].norm() / so_far[:, :, late].norm()
    return {"score_std": float(tap[site.point("scores")].std()), "to_mean": float(apart)}


def stacking(
    seed: int, residual: float, n_layers: int = 12, d_model: int = 64, n_heads: int = 4, seq_len: int = 16
) -> dict[str, float]:
    """How alike the tokens of a row become in a stack of untrained attention layers.

    Args:
        seed: of the weights.
        residual: factor of the skip around attention; 0 for attention upon attention.
        n_layers, d_model, n_heads, seq_len: of an encoder without FFN.

    Returns:
        "apart.N" for N of 1, 2, 4, 12: norm(X - mean) / norm(X) over the tokens X behind layer N, 0 where all are the
        same (Dong et al. 2021).
    """
    sizes = [f"model.d_model={d_model}", f"model.attention.n_heads={n_heads}", f"model.n_layers={n_layers}"]
    rows = [f"data.seq_len={seq_len}", f"data.task.least={seq_len}"]
    skip = f"model.layer.attention_residual={residual}"
    subject = prepare(compose("train", [*ENCODER, *sizes, *rows, skip, f"seed={seed}"]), paired=True)
    found = health(subject.model, next(iter(subject.data.val_batches())), gradients=False)
    return {f"apart.{n}": found[n - 1].relative_residual for n in (1, 2, 4, 12) if n <= n_layers}


def rank(seed: int, n_queries: int, n_keys: int, d_value: int = 8) -> dict[str, float]:
    """What attention can give out, for random queries, keys and values.

    Args:
        seed: of the numbers.
        n_queries, n_keys: N and M.
        d_value: width of the values, and of queries and keys.

    Returns:
        "rank" of the outputs, and "reach", the largest length of an output as a share of that of a value: never above
        1, since an output is a mixture of values.
    """
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, d_value, generator=draw) for n in (n_queries, n_keys, n_keys))
    out = (q @ k.T / d_value**0.5).softmax(-1) @ v
    reach = out.norm(dim=-1).max() / v.norm(dim=-1).max()
    return {"rank": float(torch.linalg.matrix_rank(out)), "reach": float(reach)}


def linearity(seed: int, part: str, d_model: int = 32, seq_len: int = 12) -> dict[str, float]:
    """How far a part of a layer is from linear: "bend", norm(f(x + y) - f(x) - f(y)) / norm(f(x + y)), 0 if it is.

    Args:
        seed: of weights and inputs.
        part: "projection" (the values), "given" (attention with the weights that x alone gives), "attention", "ffn".
        d_model: width.
        seq_len: tokens.
    """
    cfg = compose("train", ["model=gpt_tiny", f"model.d_model={d_model}", "data.seq_len=32", "model/position=none"])
    torch.manual_seed(seed)
    attention = build(cfg.model.attention)(d_model=d_model, mask=build(cfg.model.mask))
    ffn = build(cfg.model.ffn)(d_model=d_model)
    x, y = torch.randn(2, 1, seq_len, d_model)
    visible = torch.ones(seq_len, seq_len).tril().bool()

    def weights(source: torch.Tensor) -> torch.Tensor:
        q, (k, _) = attention.queries(source), attention.entries(source)
        return attention.normalize(attention.score(q, k), visible)

    def read(source: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return attention.projection.out(p @ attention.projection.v(source), source)

    given = weights(x)
    f = {
        "projection": attention.projection.v,
        "given": lambda z: read(z, given),
        "attention": lambda z: read(z, weights(z)),
        "ffn": ffn,
    }[part]
    with torch.no_grad():
        both = f(x + y)
        return {"bend": float((both - f(x) - f(y)).norm() / both.norm())}


def merged(seed: int, n_heads: int, d_model: int = 32) -> dict[str, float]:
    """Is W_Q needed? How near x A_h x^T, A_h of each head a free product, comes to x (x W_K)^T of heads cut out of x.

    Without rotary positions: these stand between W_Q and W_K, and then W_K cannot take in W_Q with one head either.

    Args:
        seed: of the matrices.
        n_heads: H; a head has d_model / H features.
        d_model: width.

    Returns:
        "missed": the share of a random W_Q W_K^T that no W_K alone can hold, mean over heads: 0 for one head.
    """
    draw = torch.Generator().manual_seed(seed)
    width = d_model // n_heads
    w_q, w_k = torch.randn(2, n_heads, d_model, width, generator=draw)
    wanted = w_q @ w_k.mT  # (H,D,D): the score is x wanted x^T
    held = torch.zeros_like(wanted)
    for head in range(n_heads):  # queries of head h are the features of x that it owns, so only these rows are free
        own = slice(head * width, (head + 1) * width)
        held[head, own] = wanted[head, own]
    return {"missed": float(((wanted - held).norm(dim=(1, 2)) / wanted.norm(dim=(1, 2))).mean())}
