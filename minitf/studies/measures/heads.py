"""Do heads differ, who serves which role, and what is each worth?"""

from __future__ import annotations

import torch

from minitf.analysis.by_role import ALL, answered, changes
from minitf.analysis.heads.measure import MASS, measure
from minitf.analysis.heads.roles import selectivity
from minitf.analysis.intervene.ablate import ablate
from minitf.studies.loop import Subject
from minitf.studies.measures.sample import ROWS, sample

DIVERSITY = ("js", "effective_heads", "cka")


def diversity(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """How much the heads of a layer differ, mean over layers; nothing where there is one head.

    Args:
        subject: any with self-attention.
        rows: of the validation split.

    Returns:
        "js", of patterns, 0 alike to 1; "effective_heads", of patterns, 1 alike to the number of heads; "cka", of
        outputs, 0 to 1 the same.
    """
    layers = [of.layer for of in measure(subject.model, sample(subject, rows)).values() if "js" in of.layer]
    return {name: sum(layer[name] for layer in layers) / len(layers) for name in DIVERSITY} if layers else {}


def by_role(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """Accuracy at the places of each role.

    Args:
        subject: its data knows the gold of a role or more.
        rows: of the validation split.

    Returns:
        For each role, such as back_1, "accuracy.back_1".
    """
    found = answered(subject.model, sample(subject, rows))
    return {f"accuracy.{role}": one.accuracy for role, one in found.items() if role != ALL}


def owners(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """Whose role is whose, by attention and by switching heads off; of a model with self-attention alone.

    Args:
        subject: its data knows the gold of two roles or more.
        rows: of the validation split.

    Returns:
        "owner.ROLE": number of the head (over all layers) that puts most mass on its gold. "owners": how many heads own
        a role. "selectivity": mean over heads. "second_role": the most mass that a head gives to a role besides the one
        that it gives most. "own_cost", "other_cost": accuracy that is lost without a head that owns a role, at the
        roles that it owns and at the others; means. No "other_cost" where one head owns all.
    """
    model, batches = subject.model, sample(subject, rows)
    found = measure(model, batches)
    heads = [(site, head) for site in found for head in range(site.n_heads)]
    roles = [name.removeprefix(MASS) for name in next(iter(found.values())).scores if name.startswith(MASS)]
    mass = torch.stack([torch.cat([of.scores[MASS + role] for of in found.values()]) for role in roles])  # (R, heads)
    owner = mass.argmax(1).tolist()
    full = answered(model, batches)
    own, other = [], []
    for number in sorted(set(owner)):
        site, head = heads[number]
        with ablate(model, {site: [head]}):
            lost = changes(full, answered(model, batches), "accuracy")
        for role, of in zip(roles, owner, strict=True):
            (own if of == number else other).append(lost[role])
    return {
        **{f"owner.{role}": float(number) for role, number in zip(roles, owner, strict=True)},
        "owners": float(len(set(owner))),
        "selectivity": float(selectivity(mass).mean()),
        "second_role": float(mass.topk(2, dim=0).values[1].max()),
        "own_cost": sum(own) / len(own),
        **({"other_cost": sum(other) / len(other)} if other else {}),
    }
