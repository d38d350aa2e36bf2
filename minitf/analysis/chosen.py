"""Which heads were asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from minitf.analysis.sites import Site


def chosen_heads(model: nn.Module, text: str | None) -> dict[Site, tuple[int, ...]]:
    """Heads by site.

    Args:
        model: has them.
        text: places as tables print them, such as "1.0, 1.3" or "cross 1.0"; without a head, "1" or "cross 1", a whole
            layer; without a layer, "cross", all of that kind. None: all heads.

    Raises:
        ConfigError: a model without heads, or a place that does not exist, with those that do.
    """
    from minitf.analysis.capture import all_heads

    there = all_heads(model)
    if not there:
        raise ConfigError("this model attends nowhere (model/attention=none): there are no heads to look at")
    if text is None:
        return there
    wanted: dict[Site, set[int]] = {}
    for place in (part.strip() for part in text.split(",")):
        found = {site: [h for h in heads if _is(site, h, place)] for site, heads in there.items()}
        if not any(found.values()):
            raise ConfigError(f"heads: there is no {place!r}; there are {_told(there)}")
        for site, heads in found.items():
            wanted.setdefault(site, set()).update(heads)
    return {site: tuple(sorted(heads)) for site, heads in wanted.items() if heads}


def _is(site: Site, head: int, place: str) -> bool:
    own = site.name(head)
    return place in (own, own.rpartition(".")[0], *re.findall(r"^[a-z]+", own))


def _told(there: dict[Site, tuple[int, ...]]) -> str:
    return ", ".join(f"{site.name(0)} to {site.name(len(heads) - 1)}" for site, heads in there.items())
