"""Several masks in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_

from torch import Tensor

from minitf.blocks.mask import Mask
from minitf.errors import ConfigError


class _Combined(Mask):
    def __init__(self, masks: Mapping[str, Mask] | Sequence[Mask]) -> None:
        given = list(masks.values() if isinstance(masks, Mapping) else masks)
        if not given or not all(isinstance(m, Mask) for m in given):
            raise ConfigError(f"{type(self).__name__} combines one mask or more, got {given!r}")
        # one of the same kind inside is spread out: (a & b) & c is All of three
        self.masks: tuple[Mask, ...] = tuple(one for m in given for one in (m.masks if type(m) is type(self) else (m,)))
        self.probe = max(m.probe for m in self.masks)

    def _sides(self) -> Iterator[tuple[int | None, ...]]:
        return zip(*(m.reach for m in self.masks), strict=True)


class All(_Combined):
    """A key may be read if every one of the masks shows it; `a & b` is All([a, b]).

    Args:
        masks: the masks, by any names or as a list.

    Raises:
        ConfigError: no mask.

    Source: the intersection of sets of places, as Child et al. 2019 (Sparse Transformers) write masks.
    """

    def __init__(self, masks: Mapping[str, Mask] | Sequence[Mask]) -> None:
        super().__init__(masks)
        self.plain_full = all(m.plain_full for m in self.masks)
        self.reach = tuple(min((n for n in side if n is not None), default=None) for side in self._sides())
        self.plain_causal = not self.plain_full and all(m.plain_full or m.plain_causal for m in self.masks)

    @property
    def sees_future(self) -> bool:
        """True if some token reads a later one; never, if one of the masks hides all of them."""
        return all(m.sees_future for m in self.masks) and super().sees_future

    def reads_within(self, window: int, n_sink: int) -> bool:
        return any(m.reads_within(window, n_sink) for m in self.masks) or super().reads_within(window, n_sink)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        return reduce(and_, (m.rule(q_off, k_off) for m in self.masks))


class Any(_Combined):
    """A key may be read if at least one of the masks shows it; `a | b` is Any([a, b]).

    Args:
        masks: the masks, by any names or as a list.

    Raises:
        ConfigError: no mask.

    Source: Child et al. 2019 (Sparse Transformers): a merged head reads the union of the sets.
    """

    def __init__(self, masks: Mapping[str, Mask] | Sequence[Mask]) -> None:
        super().__init__(masks)
        self.plain_full = any(m.plain_full for m in self.masks)
        self.reach = tuple(None if None in side else max(side) for side in self._sides())
        self.plain_causal = any(m.plain_causal for m in self.masks) and not self.sees_future

    @property
    def sees_future(self) -> bool:
        """True if one of the masks lets a token read a later one."""
        return any(m.sees_future for m in self.masks)

    def reads_within(self, window: int, n_sink: int) -> bool:
        return all(m.reads_within(window, n_sink) for m in self.masks)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        return reduce(or_, (m.rule(q_off, k_off) for m in self.masks))
