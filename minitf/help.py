"""What `--help` says: the groups of a command with their options, and its config. Hydra's own takes a second of CPU."""

from __future__ import annotations

import sys

from omegaconf import OmegaConf, open_dict

from minitf.config import compose, config_groups, group_options
from minitf.typed import is_override

ASKED = frozenset({"--help", "-h"})


def is_asked_for() -> bool:
    """Whether the command line asks for help."""
    return bool(ASKED & set(sys.argv[1:]))


def help_text(name: str) -> str:
    """The help of a command, for the choices that were typed.

    Args:
        name: of its config.
    """
    cfg = compose(name, [a for a in sys.argv[1:] if is_override(a)], return_hydra_config=True)
    texts, choices = cfg.hydra.help, cfg.hydra.runtime.choices
    with open_dict(cfg):
        del cfg["hydra"]
    top = {group.split("/")[0] for group in choices if group.split("/")[0] != "hydra"}
    top |= {"experiment"} if name == "train" else set()
    groups = [group for group in config_groups() if group.split("/")[0] in top and group_options(group)]
    return "\n".join(
        [
            texts.header,
            "",
            "Groups: group=option chooses one",
            "",
            *(f"  {group}: {', '.join(group_options(group))}" for group in groups),
            "",
            "Values, as they are now: key=value changes one, such as model.d_model=64",
            "",
            *(f"  {line}" for line in OmegaConf.to_yaml(cfg).rstrip().split("\n")),
            "",
            texts.footer,
        ]
    )
