"""Does the monitor of a training run say that something is wrong?"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import nn

from minitf.analysis.alarms import Alarms
from minitf.analysis.scores import mean_loss
from minitf.studies.loop import Subject
from minitf.studies.measures.health import ROWS, layers_of
from minitf.studies.measures.sample import sample

RULES = ("alike", "cosine", "saturated", "entropy", "gradient", "heads", "logit")
_of_model: WeakKeyDictionary[nn.Module, Alarms] = WeakKeyDictionary()  # scores that rise are seen by looking twice


def alarms(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """Which rules of `minitf.analysis.alarms` ring now.

    Take it at several steps: the rules for scores that explode and for heads that are alike compare with the time
    before.

    Args:
        subject: any with self-attention, measured before or not.
        rows: of the validation split; the loss is theirs, too.

    Returns:
        "alarm.alike", "alarm.cosine", "alarm.saturated", "alarm.entropy", "alarm.gradient", "alarm.heads",
        "alarm.logit": 1 where the rule rings in any layer, else 0.
    """
    known = _of_model.setdefault(subject.model, Alarms())
    known(layers_of(subject, rows), mean_loss(subject.model, sample(subject, rows)))
    ringing = {key.rpartition(": ")[2] for key in known.state_dict()["active"]}
    return {f"alarm.{rule}": float(rule in ringing) for rule in RULES}
