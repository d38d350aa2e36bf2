"""Pages about heads made by hand: small, with known numbers, no model."""

import numpy as np

from minitf.report.heads_data import Attention, Example, Head, HeadsPage, LayerHeads, Role, Snapshot, TopRow

HOSTILE = (
    "</script><script>throw 1</script>",
    "<img src=x onerror=alert(1)>",
    "{{7*7}}",
    "&amp;",
    "\0",
    "\u2028",
    "\u202eabc",
    "\udcff",
    "😀",
    "x" * 4000,
)


def softmax_maps(rng, n_layers, n_heads, visible):
    """Random weights (L,H,T,S) over the visible keys."""
    scores = np.where(visible, rng.normal(size=(n_layers, n_heads, *visible.shape)) * 3, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def decoder_page(n_layers=2, n_heads=3, n_tokens=12, n_examples=2, tokens=None, **more):
    """Causal heads; head 1.0 is named and has an effect beyond its controls; two examples of different lengths."""
    rng = np.random.default_rng(0)
    examples = []
    for e in range(n_examples):
        size = n_tokens - e
        visible = np.tri(size, dtype=bool)
        names = [tokens[i % len(tokens)] if tokens else f"t{i}" for i in range(size)]
        maps = softmax_maps(rng, n_layers, n_heads, visible)
        examples.append(Example(f"row {e}", (Attention("self", names, names, maps, visible),)))
    heads = [_head("self", layer, h, rng, tokens) for layer in range(n_layers) for h in range(n_heads)]
    scores = {"induction": [i / 10 for i in range(len(heads))]}
    snapshots = tuple(
        Snapshot(
            step, scores, {"self": softmax_maps(rng, n_layers, n_heads, np.tri(n_tokens, dtype=bool))} if step else {}
        )
        for step in (0, 10, 20)
    )
    health = {"token_cosine": {layer: [(step, 0.1 * step) for step in range(5)] for layer in range(n_layers)}}
    layers = tuple(LayerHeads("self", layer, tuple(range(n_heads))) for layer in range(n_layers))
    given = {
        "title": "made by hand",
        "layers": layers,
        "heads": tuple(heads),
        "examples": tuple(examples),
        "command": "python scripts/analyze.py run=here",
        "question": "which head?",
        "effect_of": "accuracy",
        "snapshots": snapshots,
        "health": health,
        "notes": ("a note",),
    }
    return HeadsPage(**(given | more))


def _head(kind, layer, h, rng, tokens):
    named = (layer, h) == (1, 0)
    row = TopRow(tokens or ["a", "b", "c"], rng.uniform(size=len(tokens or "abc")), "row 7")
    return Head(
        kind,
        layer,
        h,
        roles=(Role("induction", 0.9 if named else 0.1, 0.2, 0.3, named), Role("previous_token", 0.05, 0.2)),
        effect=-0.5 if named else 0.01 * h,
        controls=(0.0, -0.1),
        metrics={"entropy": 1.5 + layer + 0.1 * h, "odd <b>": float("nan") if named else 2.0},
        top_rows=(row,),
    )


def encoder_decoder_page():
    """Five target and nine source tokens, the last two padding: every kind of mask and of row.

    Heads 0, 2 and 5 of the encoder, 5 is uniform; layer 1 of the decoder sees two tokens; query 3 of cross sees none.
    """
    rng = np.random.default_rng(1)
    source, target = [f"s{i}" for i in range(9)], [f"t{i}" for i in range(5)]
    seen = np.broadcast_to(np.arange(9) < 7, (9, 9)).copy()
    encoder = softmax_maps(rng, 1, 3, seen)
    encoder[0, 2] = seen / 7
    cross = np.broadcast_to(np.arange(9) < 7, (5, 9)).copy()
    maps = softmax_maps(rng, 2, 2, cross)
    cross[3] = False
    maps[:, :, 3] = 0
    lower = np.tri(5, dtype=bool)
    band = lower & ~np.tri(5, k=-2, dtype=bool)
    decoder = [softmax_maps(rng, 1, 2, visible)[0] for visible in (lower, band)]
    attention = (
        Attention("encoder", source, source, encoder, seen),
        Attention("decoder", target, target, decoder, np.stack([lower, band])),
        Attention("cross", target, source, maps, cross),
    )
    layers = (
        LayerHeads("encoder", 0, (0, 2, 5)),
        LayerHeads("decoder", 0, (0, 1)),
        LayerHeads("decoder", 1, (0, 1)),
        LayerHeads("cross", 0, (0, 1)),
        LayerHeads("cross", 1, (0, 1)),
    )
    heads = tuple(Head(group.kind, group.layer, h) for group in layers for h in group.heads)
    return HeadsPage("source and target", layers, heads, (Example("one", attention),))


def diagonal_page(n_tokens):
    """One layer whose head 0 looks at the token before, weight 1, and whose head 1 looks at itself."""
    visible = np.tri(n_tokens, dtype=bool)
    maps = np.zeros((1, 2, n_tokens, n_tokens))
    for i in range(n_tokens):
        maps[0, 0, i, max(i - 1, 0)] = maps[0, 1, i, i] = 1
    names = [f"t{i}" for i in range(n_tokens)]
    heads = (Head("self", 0, 0), Head("self", 0, 1))
    example = Example("diagonals", (Attention("self", names, names, maps, visible),))
    return HeadsPage("diagonals", (LayerHeads("self", 0, (0, 1)),), heads, (example,))
