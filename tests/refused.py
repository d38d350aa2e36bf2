"""What may not be combined, and why: mathematics alone. Everything else must build, and obeys the laws."""

from fnmatch import fnmatchcase
from typing import NamedTuple

from cover import Choice


class Refusal(NamedTuple):
    """Two axes, each followed by its choices: none of the first may meet one of the second. "rope*" matches many."""

    reason: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    message: str

    def holds(self, a: Choice, b: Choice) -> bool:
        """Whether two choices are such a pair."""
        return any(_among(x, self.first) and _among(y, self.second) for x, y in ((a, b), (b, a)))


def _among(choice: Choice, ones: tuple[str, ...]) -> bool:
    return choice[0] == ones[0] and any(fnmatchcase(str(choice[1]), one) for one in ones[1:])


RENUMBERS = ("streaming*", "int8+inner=streaming")
# refused when caches are made, or when they meet the model
REFUSED_CACHES = [
    Refusal(
        "the window reads less than the mask",
        ("mask", "causal", "causal_bigbird", "causal_closed_diagonal", "strided"),
        ("cache", "window", "window+window=4"),
        r"layer \d reads further \(mask \w+\) than this \w+ cache keeps",
    ),
    Refusal(
        "a key was made from the embedding, which knows its first position",
        ("position", "learned", "sinusoidal"),
        ("cache", *RENUMBERS),
        "cannot serve position=(learned|sinusoidal)",
    ),
    Refusal(
        "the token before a key may be forgotten, and then another one stands before it",
        ("projection", "smeared"),
        ("cache", *RENUMBERS),
        "cannot serve keys that read the token before them",
    ),
    Refusal(
        "a window of one token has no room for the one before it",
        ("projection", "smeared"),
        ("cache", "window*window=1"),
        "leaves nothing to read",
    ),
    Refusal(
        "a later token is not in the cache yet",
        ("mask", "bigbird", "block_local", "closed_diagonal", "document", "full", "prefix_lm"),
        ("cache", "*"),
        "this mask lets a token read later ones|reads further",
    ),
]

REFUSED = [
    Refusal(
        "queries and keys are one tensor, so they cannot differ in the number of heads",
        ("projection", "tied_qk", "identity"),
        ("attention", "gqa", "mqa"),
        r"n_kv_heads \(\d\) must be n_heads \(4\)",
    ),
    Refusal(
        "keys and values are one tensor, so they cannot differ in width",
        ("projection", "tied_kv", "no_wq_tied_kv", "identity"),
        ("sizes", "d_value=6"),
        r"d_value \(6\) must be d_head \(4\)",
    ),
    Refusal(
        "x itself is cut into queries, so all of them together are as wide as x",
        ("projection", "no_wq", "no_wq_tied_kv", "identity"),
        ("sizes", "d_head=*"),
        r"n_heads x d_head \(4 x \d\) must be d_model \(16\)",
    ),
    Refusal(
        "heads whose queries are different parts of x cannot be the same",
        ("projection", "no_wq", "no_wq_tied_kv", "identity"),
        ("init", "identical_heads"),
        "4 heads of projection=.* read different parts of x",
    ),
    Refusal(
        "a matrix that is not there cannot be changed",
        ("projection", "no_wq", "no_wq_tied_kv", "identity"),
        ("init", "zero_q", "zero_qk"),
        "changes w_q, which no projection of this model has",
    ),
    Refusal(
        "a matrix that is not there cannot be changed",
        ("projection", "identity"),
        ("init", "gain", "sigma_reparam"),
        "changes w_q and w_k.*, which no projection of this model has",
    ),
    Refusal(
        "a matrix that is not there cannot be changed",
        ("attention", "none"),
        ("init", "zero_q", "zero_qk", "gain", "sigma_reparam"),
        "changes w_q.*, which no projection of this model has",
    ),
    Refusal(
        "matrices that are not there cannot be changed",
        ("ffn", "none"),
        ("init", "ffn_gain"),
        "changes the matrices of the FFN, which this model has none of",
    ),
    Refusal(
        "without attention there are no heads",
        ("attention", "none"),
        ("init", "identical_heads"),
        "identical_heads finds no heads in this model",
    ),
    Refusal(
        "features are rotated in pairs",
        ("position", "rope+scaling=*"),
        ("sizes", "d_head=5"),
        "rope needs an even d_head, got 5",
    ),
    Refusal(
        "features are rotated in pairs",
        ("position", "rope+rotated=0.5"),
        ("sizes", "d_head=6"),
        r"rotated=0.5 turns 3 of d_head=6 features",
    ),
    Refusal(
        "without attention there are no queries to rotate",
        ("attention", "none"),
        ("position", "rope*"),
        r"works by \['rotate'\], .* takes only \['embed'\]",
    ),
    Refusal(
        "without attention there are no scores to add to",
        ("attention", "none"),
        ("position", "alibi", "relative_bias"),
        r"works by \['bias'\], .* takes only \['embed'\]",
    ),
]

# groups that an option does not have, so that no command line can choose from them: they stay at what is said here
ABSENT = {("attention", "mla"): {"projection": "free"}}


def refused(a: Choice, b: Choice) -> bool:
    """Whether two choices may not meet."""
    return any(refusal.holds(a, b) for refusal in (*REFUSED, *REFUSED_CACHES)) or absent(a, b)


def absent(a: Choice, b: Choice) -> bool:
    """Whether two choices never meet, because the first or the second does without the other's group."""
    return any(y[0] in ABSENT.get(x, {}) and y[1] != ABSENT[x][y[0]] for x, y in ((a, b), (b, a)))
