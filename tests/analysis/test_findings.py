"""What is found out about a run as a whole."""

import json

import head_models
import pytest
import torch

from minitf.analysis.capture import all_heads
from minitf.analysis.findings import find_out
from minitf.errors import DataError

SETTING = ("data=repeat", "data.n_val=8", "model.d_model=16", "model.n_layers=1")
HOW = {"measure": "accuracy", "ablate": "zero", "n_shuffles": 1, "n_draws": 1, "seed": 0, "about": {}}


def test_a_model_that_has_diverged_is_refused_before_it_is_measured():
    model, batches = head_models.new_model(0, *SETTING), head_models.batches(*SETTING)
    found = find_out(model, batches, iter(()), all_heads(model), **HOW).to_dict()
    json.dumps(found["full"] | found["effects"], allow_nan=False)
    with torch.no_grad():
        model.layers[0].attention.projection.w_v.weight.fill_(torch.inf)
    with pytest.raises(DataError, match=r"the loss of this model is nan on these rows.*checkpoint=STEP"):
        find_out(model, batches, iter(()), all_heads(model), **HOW)
