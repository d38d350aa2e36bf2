"""Small models for the doctor, and what it says of them."""

import torch
from omegaconf import OmegaConf
from parts import node

from minitf.analysis.forward import run
from minitf.config import build, config_dir
from minitf.demo.doctor.examine import examine
from minitf.demo.doctor.laws import BROKEN, laws
from minitf.demo.doctor.mistakes import named, unexplained


def made(preset="gpt_tiny", *overrides, bug=None, seed=0, steps=0):
    """A small model, perhaps with a mistake, perhaps after some steps of training."""
    config = node(preset, *overrides)
    if bug is not None:
        config.merge_with(OmegaConf.load(config_dir() / f"bug/{bug}.yaml").model)
    torch.manual_seed(seed)
    model = build(config)
    words = words_of(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        batch = {name: torch.randint(n, (4, 10)) for name, n in words.items()}
        logits = run(model, batch)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), logits.flatten(0, -2).argmin(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def words_of(model):
    return {"ids": 65, "src": 65} if hasattr(model, "encode") else {"ids": 65}


def diagnosis(model):
    """All laws, and the names of the mistakes."""
    found = examine(model, words_of(model))
    all_laws = laws(found)
    mistakes = named(found)
    assert not mistakes or not unexplained(mistakes, all_laws)
    return all_laws, [mistake.name for mistake in mistakes]


def seen(all_laws, name):
    return next(law.seen for law in all_laws if law.name == name)


def broken(all_laws):
    return [law for law in all_laws if law.state == BROKEN]
