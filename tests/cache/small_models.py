"""A model of two layers from one choice of each part."""

from __future__ import annotations

import functools
import importlib

import parts
import torch
from cover import Cell
from omegaconf import OmegaConf

D_MODEL = 16
INSIDE = ("score", "normalize", "projection", "qk_norm")  # of attention
GROUPS = {axis: f"model/attention/{axis}" for axis in INSIDE}
GROUPS |= {axis: f"model/{axis}" for axis in ("attention", "position", "mask", "layer", "ffn")}
SIZES = {"d_model/H": {}, "d_head=6": {"d_head": 6}, "d_value=6": {"d_value": 6}}
PRESETS = {"decoder": "gpt_tiny", "encoder_decoder": "encdec_tiny"}


def build_model(cell: Cell) -> torch.nn.Module:
    """A model of two layers with large random weights, so that no part hides in the noise."""
    chosen = {axis: parts.factory(GROUPS[axis], cell[axis]) for axis in (*INSIDE, "position", "mask", "layer", "ffn")}
    attention = parts.factory("model/attention", cell["attention"])
    inside = {**{axis: chosen.pop(axis) for axis in INSIDE}, **SIZES[cell["sizes"]]}
    definition = cell["fast"] == "definition"
    inside["fast"] = None if definition else parts.factory("model/attention/fast", cell["fast"])
    attention = functools.partial(attention, **{k: v for k, v in inside.items() if k in attention.keywords})
    own = {
        "same": {},
        "differ": {"mask": parts.factory("model/mask", "sliding_window+window=2")},
        "without": {"attention": parts.factory("model/attention", "none")},
    }[cell["layers"]]
    recipes, pattern = ({"first": own}, ["first", None]) if own else ({}, [])
    prefix = "" if cell["model"] == "decoder" else "decoder_"
    preset = _preset(PRESETS[cell["model"]])
    module, _, name = preset["_target_"].rpartition(".")
    made = {key: value for key, value in preset.items() if key != "_target_"} | chosen
    made |= {"attention": attention, f"{prefix}recipes": recipes, f"{prefix}pattern": pattern}
    made |= {"init": lambda model: None, "norm": parts.factory("model/norm", "rms"), "tie_embeddings": False}
    if "head" in made:
        made["head"] = parts.factory("model/head", "lm")
    model = getattr(importlib.import_module(module), name)(**made)
    parts.randomise(model, 4 / D_MODEL)
    return model.to(cell["dtype"]).eval()


@functools.cache
def _preset(name: str) -> dict:
    return OmegaConf.to_container(parts.node(name))
