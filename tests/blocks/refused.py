"""What may not be combined, and why: mathematics alone. Everything else must build, and obeys the laws."""

from fnmatch import fnmatchcase
from typing import NamedTuple

from cover import Choice


class Refusal(NamedTuple):
    """Each choice of one axis with each choice of another; "rope*" stands for all that begin so."""

    first: str
    ones: tuple[str, ...]
    second: str
    others: tuple[str, ...]
    message: str

    def holds(self, a: Choice, b: Choice) -> bool:
        """Whether two choices are such a pair."""
        return any(
            (x[0], y[0]) == (self.first, self.second) and _among(x[1], self.ones) and _among(y[1], self.others)
            for x, y in ((a, b), (b, a))
        )


def _among(value: object, ones: tuple[str, ...]) -> bool:
    return any(fnmatchcase(str(value), one) for one in ones)


REFUSED = [
    # queries and keys are one tensor, so they cannot differ in the number of heads
    Refusal("projection", ("tied_qk", "identity"), "heads", ("gqa", "mqa"), r"n_kv_heads \(\d\) must be n_heads \(4\)"),
    # keys and values are one tensor, so they cannot differ in width
    Refusal(
        "projection",
        ("tied_kv", "no_wq_tied_kv", "identity"),
        "sizes",
        ("d_value=6",),
        r"d_value \(6\) must be d_head \(4\)",
    ),
    # x itself is cut into queries, so these are together as wide as x
    Refusal(
        "projection",
        ("no_wq", "no_wq_tied_kv", "identity"),
        "sizes",
        ("d_head=*",),
        r"n_heads x d_head \(4 x \d\) must be d_model \(16\)",
    ),
    # features are rotated in pairs
    Refusal("position", ("rope+scaling=*",), "sizes", ("d_head=5",), "rope needs an even d_head, got 5"),
    Refusal("position", ("rope+rotated=0.5",), "sizes", ("d_head=6",), r"rotated=0.5 turns 3 of d_head=6 features"),
    # without attention there are neither queries to rotate nor scores to add to
    Refusal("heads", ("none",), "position", ("rope*",), r"works by \['rotate'\], .* takes only \['embed'\]"),
    Refusal("heads", ("none",), "position", ("alibi", "relative_bias"), r"works by \['bias'\], .* only \['embed'\]"),
]


def refused(a: Choice, b: Choice) -> bool:
    """Whether two choices may not meet."""
    return any(refusal.holds(a, b) for refusal in REFUSED)
