"""Read or change activations by name, without changing any result when nobody listens.

with Tap(model, at=["layers.*.attention.weights"]) as tap:
    model(ids)
tap["layers.2.attention.weights"]                    # (B,H,T,S)
tap.key_positions["layers.2.attention.weights"]      # (B or 1, S), which token each key is

with Tap(model, edit={"layers.1.attention.heads": zero_heads([3])}):
    model(ids)                                       # head 3 of layer 1 is switched off
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

Edit = Callable[[Tensor], Tensor]
Keep = Callable[[str, Tensor], Any]
OVER_KEYS = ("scores", "weights")  # points with a column for each key


class Tappable(nn.Module):
    """A module with named activations; `tap` is None unless a `Tap` is open."""

    tap_points: ClassVar[tuple[str, ...]] = ()
    tap: Listener | None = None


class Listener:
    """What a `Tap` leaves in one module: which of its points are read, which are changed."""

    def __init__(self, name: str, outer: Listener | None, keep: Keep | None = None) -> None:
        self.name = name
        self.outer = outer
        self.keep = keep
        self.read: set[str] = set()
        self.edit: dict[str, Edit] = {}
        self.values: dict[str, Any] = {}
        self.key_positions: dict[str, Tensor] = {}

    def wants(self, *points: str) -> bool:
        """True if any of the points is read or changed."""
        own = any(p in self.read or p in self.edit for p in points)
        return own or (self.outer is not None and self.outer.wants(*points))

    def edits(self, *points: str) -> bool:
        """True if any of the points is changed."""
        return any(p in self.edit for p in points) or (self.outer is not None and self.outer.edits(*points))

    def __call__(self, point: str, value: Tensor) -> Tensor:
        """Pass `value` through: change it if asked to, keep a detached view of what goes on if asked to."""
        value = self._change(point, value)
        self._keep(point, value)
        return value

    def keys(self, pos: Tensor) -> None:
        """Keep the positions of the keys for whoever reads scores or weights: a cache gives keys in its own order.

        Args:
            pos: int64 (B or 1, S), -1 where a key is no token.
        """
        if self.outer is not None:
            self.outer.keys(pos)
        for point in self.read.intersection(OVER_KEYS):
            self.key_positions[self._full(point)] = pos.clone()  # a cache may write into its own in place

    def _change(self, point: str, value: Tensor) -> Tensor:
        if self.outer is not None:
            value = self.outer._change(point, value)
        if point not in self.edit:
            return value
        changed = self.edit[point](value)
        if getattr(changed, "shape", None) != value.shape:
            got = getattr(changed, "shape", changed)
            raise ValueError(f"the edit of '{self.name}.{point}' must return the shape {tuple(value.shape)}, got {got}")
        return changed

    def _keep(self, point: str, value: Tensor) -> None:
        # after every change, also those of inner taps: what is read is what goes on
        if self.outer is not None:
            self.outer._keep(point, value)
        if point in self.read:
            name, value = self._full(point), value.detach()
            self.values[name] = value if self.keep is None else self.keep(name, value)

    def _full(self, point: str) -> str:
        return f"{self.name}.{point}" if self.name else point


class Tap:
    """Listen to a model inside a `with` block.

    Args:
        model: any module that holds `Tappable` modules.
        at: name or names to read; `*` stands for any part of a name. A name read twice keeps the last value.
        edit: name -> function of the activation that returns what goes on in its place; same shape.
        keep: function of (name, activation) that returns what is kept of it, while the model goes on: a part of a large
            one, or a number. It must not write into the activation. None: all is kept.

    Attributes:
        values: name -> what was kept; `tap[name]` is the same with a better message.
        key_positions: name of scores or weights that are read -> int64 (B or 1, S), the position of the token that each
            of their columns stands for; -1: of none (padding, an empty place of a cache).

    Raises:
        KeyError: a name that no module has; the message lists the nearest names.
    """

    def __init__(
        self,
        model: nn.Module,
        at: str | Sequence[str] = (),
        edit: dict[str, Edit] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._modules = {f"{name}." if name else "": m for name, m in model.named_modules() if isinstance(m, Tappable)}
        known = {prefix + point: (prefix, point) for prefix, m in self._modules.items() for point in m.tap_points}
        self._read = [
            known[name] for pattern in ([at] if isinstance(at, str) else at) for name in _matches(pattern, known)
        ]
        self._edit = [
            (*known[name], change) for pattern, change in (edit or {}).items() for name in _matches(pattern, known)
        ]
        self._open: dict[str, Listener] = {}
        self._keep = keep
        self.values: dict[str, Any] = {}
        self.key_positions: dict[str, Tensor] = {}

    def __enter__(self) -> Tap:
        if self._open:
            raise RuntimeError("this Tap is open already: make a second one to nest them")
        prefixes = dict.fromkeys([p for p, _ in self._read] + [p for p, _, _ in self._edit])
        self._open = {p: Listener(p.rstrip("."), self._modules[p].tap, self._keep) for p in prefixes}
        for prefix, point in self._read:
            self._open[prefix].read.add(point)
        for prefix, point, change in self._edit:
            self._open[prefix].edit[point] = change
        for prefix, listener in self._open.items():
            listener.values, listener.key_positions = self.values, self.key_positions
            self._modules[prefix].tap = listener
        return self

    def __exit__(self, *exc: object) -> None:
        for prefix, listener in self._open.items():
            self._modules[prefix].tap = listener.outer
        self._open = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.values:
            raise KeyError(f"nothing was read at '{name}'; read: {sorted(self.values) or 'nothing yet'}")
        return self.values[name]

    @staticmethod
    def names(model: nn.Module) -> list[str]:
        """Every name that can be read or changed in this model."""
        return [
            f"{name}.{point}" if name else point
            for name, m in model.named_modules()
            if isinstance(m, Tappable)
            for point in m.tap_points
        ]


def zero_heads(heads: Sequence[int]) -> Edit:
    """An edit of a `heads` point (B,H,T,d) that switches off the given heads, before w_o mixes them."""

    def edit(value: Tensor) -> Tensor:
        for h in heads:
            if not 0 <= h < value.size(1):
                raise IndexError(f"head {h} does not exist: this layer has heads 0 to {value.size(1) - 1}")
        value = value.clone()
        value[:, list(heads)] = 0
        return value

    return edit


def _matches(pattern: str, known: dict[str, tuple[str, str]]) -> list[str]:
    found = fnmatch.filter(known, pattern)
    if not found:
        nearest = difflib.get_close_matches(pattern, known, n=3, cutoff=0.3)
        raise KeyError(f"no activation is called '{pattern}'; nearest: {nearest or sorted(known)[:3]}")
    return found
