"""Small data and models for the tests of the analysis."""

from functools import cache

import torch

from minitf.config import build, build_data, compose, set_data_facts
from minitf.suited import suited
from minitf.training.objective import Objective

TINY = ["model.d_model=48", "model.attention.n_heads=4"]


@cache
def prepared(*overrides):
    """Config, data and the task that goes with it; "data=..." is the first override."""
    overrides = [*overrides, *suited(list(overrides))]
    cfg = compose("train", overrides)
    data = build_data(cfg).prepare(lambda line: None)
    set_data_facts(cfg, **data.facts)
    return cfg, data


def batches(*overrides):
    """Batches of the validation split."""
    return list(prepared(*overrides)[1].val_batches())


def new_model(seed, *overrides):
    """An untrained model in evaluation mode."""
    torch.manual_seed(seed)
    return build(prepared(*overrides)[0].model).eval()


def trained(seed, n_steps, *overrides, lr=3e-3):
    """A model after some steps of AdamW with a short warm-up."""
    cfg, data = prepared(*overrides)
    objective: Objective = build(cfg.task)
    model = new_model(seed, *overrides).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    for step in range(n_steps):
        batch = {name: value for name, value in data.train_batch(step).items() if name != "n_scored"}
        loss, _ = objective(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()
