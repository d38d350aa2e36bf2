"""Samples of a space too large to walk through: every pair of choices, or random cells; always the same ones."""

import itertools
import random
from collections.abc import Callable, Hashable, Iterator

Cell = dict[str, Hashable]
Choice = tuple[str, Hashable]
Refused = Callable[[Choice, Choice], bool]


def nothing(a: Choice, b: Choice) -> bool:
    """Nothing is refused."""
    return False


class Space:
    """The cells over some axes that hold no refused pair of choices.

    Args:
        axes: name -> choices.
        refused: whether two choices of different axes must not meet; the earlier axis comes first.
    """

    def __init__(self, axes: dict[str, list], refused: Refused = nothing) -> None:
        self.axes = axes
        self.choices: list[Choice] = [(axis, value) for axis, values in axes.items() for value in values]
        self.number = {choice: n for n, choice in enumerate(self.choices)}
        self.numbers = {axis: [self.number[axis, value] for value in values] for axis, values in axes.items()}
        # sets of choices are the bits of whole numbers: a greedy search asks for millions of intersections
        self.forbidden = [0] * len(self.choices)
        self.partners = [0] * len(self.choices)
        for a, b in itertools.combinations(range(len(self.choices)), 2):
            if self.choices[a][0] != self.choices[b][0]:
                table = self.forbidden if refused(self.choices[a], self.choices[b]) else self.partners
                table[a] |= 1 << b
                table[b] |= 1 << a

    def pairs(self) -> set[tuple[Choice, Choice]]:
        """Every pair that may meet."""
        both = itertools.combinations(range(len(self.choices)), 2)
        return {(self.choices[a], self.choices[b]) for a, b in both if self.partners[a] >> b & 1}

    def cell(self, numbers: list[int]) -> Cell:
        """The cell with these choices, axes in their order."""
        chosen = dict(self.choices[n] for n in numbers)
        return {axis: chosen[axis] for axis in self.axes}

    def complete(self, fixed: Cell, rng: random.Random) -> Cell | None:
        """A random cell with some choices given; None if they cannot meet.

        Each other choice is equally likely among those that the ones before it allow, axes in random order.
        """
        numbers, held = [], 0
        for axis in sorted(self.axes, key=lambda axis: (axis not in fixed, rng.random())):
            own = self.numbers[axis] if axis not in fixed else [self.number[axis, fixed[axis]]]
            allowed = [n for n in own if not self.forbidden[n] & held]
            if not allowed:
                return None
            numbers.append(rng.choice(allowed))
            held |= 1 << numbers[-1]
        return self.cell(numbers)

    def allows(self, cell: Cell) -> bool:
        """Whether no two choices of a cell are a refused pair."""
        numbers = [self.number[choice] for choice in cell.items()]
        held = sum(1 << n for n in numbers)
        return not any(self.forbidden[n] & held for n in numbers)

    def sample(self, n: int, seed: Hashable) -> Iterator[Cell]:
        """n random cells."""
        rng = random.Random(str(seed))
        cells = (self.complete({}, rng) for _ in itertools.count())
        return itertools.islice(filter(None, cells), n)


def cover(axes: dict[str, list], refused: Refused = nothing, seed: int = 0, tries: int = 8) -> list[Cell]:
    """Few cells that hold every allowed pair of choices: each is the best of some greedy tries.

    Args:
        axes, refused: as for `Space`.
        seed: another one gives other cells.
        tries: cells that are tried for each that is taken.

    Source: Cohen et al. 1997 (AETG).
    """
    space, rng = Space(axes, refused), random.Random(seed)
    missing = list(space.partners)
    cells, failures = [], 0
    while any(missing):
        best, held, gain = None, 0, 0
        for _ in range(tries):
            numbers, mask, new = _greedy(space, missing, rng)
            if new > gain:
                best, held, gain = numbers, mask, new
        if best is None:
            failures += 1
            if failures > 1000:
                raise ValueError("some pair of choices is allowed, but no cell can hold it")
            continue
        for n in best:
            missing[n] &= ~held
        cells.append(space.cell(best))
    return cells


def _greedy(space: Space, missing: list[int], rng: random.Random) -> tuple[list[int], int, int]:
    """One cell around a missing pair: its choices, the same as bits, and how many missing pairs it holds (0: none)."""
    first = rng.choice([n for n, left in enumerate(missing) if left])
    second = rng.choice([n for n in range(len(missing)) if missing[first] >> n & 1])
    chosen, held, gain = [first, second], 1 << first | 1 << second, 1
    for own in rng.sample(list(space.numbers.values()), len(space.numbers)):
        if first in own or second in own:
            continue
        allowed = [n for n in own if not space.forbidden[n] & held]
        if not allowed:
            return chosen, held, 0
        gains = [(missing[n] & held).bit_count() for n in allowed]
        most = max(gains)
        chosen.append(rng.choice([n for n, g in zip(allowed, gains, strict=True) if g == most]))
        held |= 1 << chosen[-1]
        gain += most
    return chosen, held, gain
