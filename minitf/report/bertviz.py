"""Maps in the form that BertViz reads: for each kind a list of layers, each (1,H,T,S)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minitf.files import atomic_file
from minitf.report.heads_data import Attention, Example

# the names that bertviz.head_view and model_view give to their arguments
WEIGHTS = {
    "self": "attention",
    "encoder": "encoder_attention",
    "decoder": "decoder_attention",
    "cross": "cross_attention",
}
TOKENS = {
    "self": {"tokens": "queries"},
    "encoder": {"encoder_tokens": "keys"},
    "decoder": {"decoder_tokens": "queries"},
    "cross": {"encoder_tokens": "keys", "decoder_tokens": "queries"},
}


def bertviz(example: Example) -> dict[str, Any]:
    """The arguments of `bertviz.head_view` and `model_view` for one example.

    Args:
        example: its maps, one kind "self", or any of "encoder", "decoder" and "cross".

    Returns:
        "attention", or "encoder_attention", "decoder_attention" and "cross_attention": a list with float32 (1,H,T,S)
        for each layer, in the order of the layers; "tokens", or "encoder_tokens" and "decoder_tokens": lists of
        strings.
    """
    found: dict[str, Any] = {}
    for attention in example.attention:
        found[WEIGHTS[attention.kind]] = _layers(attention)
        for name, side in TOKENS[attention.kind].items():
            found[name] = list(getattr(attention, side))
    return found


def save_bertviz(path: str | Path, examples: Mapping[str, Example]) -> None:
    """Write the arguments of several examples to one file, which `torch.load(path, weights_only=True)` reads.

    Args:
        path: the file.
        examples: name -> example.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(path) as file:
        torch.save({name: bertviz(example) for name, example in examples.items()}, file)


def _layers(attention: Attention) -> list[Tensor]:
    # a copy: the view of a larger array would bring all of it into the file
    return [torch.as_tensor(w).detach().to("cpu", torch.float32, copy=True)[None] for w in attention.weights]
