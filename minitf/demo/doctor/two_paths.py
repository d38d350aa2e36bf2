"""What it looks like where the fast path and the definition part."""

from __future__ import annotations

from torch import Tensor

from minitf.demo.doctor.examine import Examination
from minitf.demo.doctor.laws import DOCUMENTS, PADDING, PATHS
from minitf.demo.doctor.mistake import Mistake
from minitf.demo.doctor.paths import APART, LONG, PLAIN

_WHO = "Training takes the fast path; the analysis of weights, and padded and packed rows, ask the rule."
_CLAIM = (
    "a mask that says {claim}, which the fast path takes at its word: there a query reads {what}. The mask's own rule "
    f"shows other keys. {_WHO}"
)
_OTHER = f"a fast path that reads other keys than the mask's rule shows. {_WHO}"
_LONG = (
    f"a mask that says too little in `reach`: only long rows differ ({LONG} tokens), where the fast path leaves out "
    "what lies further away."
)
_ROWS = "a fast path that does not ask the mask where rows are padded or packed."
_NORMALIZE = "a normaliser that says is_softmax, and is none: the fast path computes a softmax in its place."
_SCORE = (
    "a score whose `dot_form` is another one than its definition, or a fast path that adds positions in another way: "
    "the same keys are read, with other weights."
)


def of_paths(found: Examination) -> Mistake:
    """Of an examination that has a definition beside it."""
    told = _told(found)
    return Mistake("", told, frozenset({PATHS, PADDING, DOCUMENTS} if told == _ROWS else {PATHS}))


def _told(found: Examination) -> str:
    parted = [one for one in found.paths if one.differs]
    plain = [one for one in parted if one.apart[PLAIN] > APART]
    if not plain:
        return _LONG if all(kind == "long" for one in parted for kind, s in one.apart.items() if s > APART) else _ROWS
    fast, definition = ({one.site: one.seen for one in way.attention} for way in (found, found.definition))
    for one in plain:
        if not fast[one.site].equal(definition[one.site]):
            return _of_mask(fast[one.site])
    return _SCORE if all(one.softmax for one in plain) else _NORMALIZE


def _of_mask(seen: Tensor) -> str:
    if seen.all():
        return _CLAIM.format(claim="`plain_full`", what="every key")
    if seen.equal(seen.new_ones(seen.shape).tril()):
        return _CLAIM.format(claim="`plain_causal`", what="itself and what comes before it")
    return _OTHER
