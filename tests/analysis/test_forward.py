import parts
import pytest
import torch

from minitf.analysis import forward
from minitf.analysis.sites import sites
from minitf.config import build, compose


def data_batch(name, n_val=6):
    overrides = [f"data.n_val={n_val}"] if name in SYNTHETIC else []
    data = build(compose(f"data/{name}", overrides).data).prepare(lambda line: None)
    return next(iter(data.val_batches())), data


SYNTHETIC = {"repeat": "answer", "look_back": "tag", "reverse": "tag", "sort": "seq2seq", "sort_pointer": "pointer"}
SYNTHETIC |= {"majority": "classify"}


def test_sites_are_named_by_what_they_read():
    found = sites(parts.model("gpt_tiny"))
    assert [(s.kind, s.layer, s.prefix, s.n_heads) for s in found] == [
        ("self", 0, "layers.0.attention", 4),
        ("self", 1, "layers.1.attention", 4),
    ]
    assert found[1].name(3) == "1.3"
    assert found[1].point("weights") == "layers.1.attention.weights"
    both = sites(parts.model("encdec_tiny"))
    assert [s.name(0) for s in both] == [
        "encoder 0.0", "encoder 1.0", "decoder 0.0", "cross 0.0", "decoder 1.0", "cross 1.0",
    ]  # fmt: skip
    assert [(s.name(0), s.n_heads) for s in sites(parts.model("bahdanau"))] == [("cross 0.0", 1)]
    assert sites(parts.model("gpt_tiny", "model/attention=none")) == []
