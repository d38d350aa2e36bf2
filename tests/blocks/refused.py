"""What may not be combined, and why: mathematics alone. Everything else must build, and obeys the laws."""

from typing import NamedTuple

from cover import Choice


class Refusal(NamedTuple):
    """Each choice of `first` with each of `second`; "*" at the end of one stands for anything."""

    first: tuple[str, tuple[str, ...]]
    second: tuple[str, tuple[str, ...]]
    message: str

    def holds(self, a: Choice, b: Choice) -> bool:
        """Whether two choices are such a pair."""
        return any(_among(x, self.first) and _among(y, self.second) for x, y in ((a, b), (b, a)))


def _among(choice: Choice, ones: tuple[str, tuple[str, ...]]) -> bool:
    axis, value = choice
    return axis == ones[0] and any(
        value == one or (one.endswith("*") and str(value).startswith(one[:-1])) for one in ones[1]
    )


REFUSED: list[Refusal] = [
    # pairs of features are rotated together
    Refusal(("position", ("rope*",)), ("sizes", ("d_head=5",)), "rope needs an even d_head, got 5"),
]


def refused(a: Choice, b: Choice) -> bool:
    """Whether two choices may not meet."""
    return any(refusal.holds(a, b) for refusal in REFUSED)
