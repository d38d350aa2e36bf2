"""How this process was started: by a user, by Lightning as a further process of a run, or by torchrun.

Imports nothing heavy: the command line asks, before anything else is known.
"""

import os


def from_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def from_lightning() -> bool:
    """Whether Lightning started this process, by repeating the command line of another."""
    # it sets all three; one alone may be anybody's
    return not from_torchrun() and all(name in os.environ for name in ("LOCAL_RANK", "NODE_RANK", "MASTER_PORT"))


def rank() -> int:
    """Number of this process in its run, known before the processes have met."""
    if from_torchrun():
        return int(os.environ["RANK"])
    return int(os.environ["LOCAL_RANK"]) if from_lightning() else 0
