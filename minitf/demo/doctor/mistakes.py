"""From broken laws to the mistake that breaks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from minitf.demo.doctor.examine import Examination
from minitf.demo.doctor.laws import (
    ALONE,
    BROKEN,
    CACHE,
    COLUMNS,
    DOCUMENTS,
    DROPOUT,
    EVALUATION,
    FUTURE,
    PADDING,
    PAST,
    ROWS,
    SCALE,
    Law,
    by_columns,
    laws_of_path,
    weights,
)
from minitf.demo.doctor.mistake import Mistake
from minitf.demo.doctor.two_paths import of_paths

WRONG_AXIS = Mistake(
    "wrong_axis",
    "softmax runs over the queries (dim=-2), not over the keys: the weights of each key sum to 1. A later query then "
    "changes the weights of an earlier one, which lets the future leak.",
    frozenset({ROWS, COLUMNS, ALONE, FUTURE, CACHE, PADDING, DOCUMENTS}),
)
INVERTED = Mistake(
    "mask_inverted",
    "the causal mask is the wrong triangle: a token reads itself and later tokens, and none before it.",
    frozenset({FUTURE, PAST, CACHE}),
)
CONVENTION = Mistake(
    "mask_convention",
    "the mask is read the wrong way round: a token reads what should be hidden, and neither itself nor the past.",
    frozenset({FUTURE, PAST, CACHE, PADDING, DOCUMENTS}),
)
NO_MASK = Mistake(
    "",
    "the mask does not hide what comes later, and the model writes token by token: in training it copies the answer. "
    "That is right only where these few tokens are a prefix that is never asked for, as with model/mask=prefix_lm.",
    frozenset({FUTURE, CACHE}),
)
NO_SCALE = Mistake(
    "no_scale",
    "the scores are the products q.k as they are, without 1/sqrt(d), and q and k do not make up for it.",
    frozenset({SCALE}),
)
ALWAYS = Mistake(
    "dropout_always",
    "dropout is on in evaluation as well.",
    frozenset({EVALUATION, ROWS}),
)
PLACE = Mistake(
    "dropout_place",
    "dropout changes the scores before the softmax (or something else before the sum), and drops no weight.",
    frozenset({DROPOUT}),
)


def named(found: Examination) -> list[Mistake]:
    """Every mistake that explains a broken law, on either of the two paths."""
    if found.definition is None:
        return list(_named(found))
    fast, definition = list(_named(found)), list(_named(found.definition))
    both = [one for one in fast if one in definition]
    return [
        of_paths(found),
        *both,
        *(replace(one, told=f"{one.told} Seen on the fast path alone.") for one in fast if one not in both),
        *(
            replace(one, told=f"{one.told} Seen by definition alone: the fast path hides it.")
            for one in definition
            if one not in both
        ),
    ]


def _named(found: Examination) -> Iterator[Mistake]:
    broken = {law.name for law in laws_of_path(found) if law.state == BROKEN}
    wrong_axis = any(by_columns(one) for one in weights(found))
    if wrong_axis:
        yield WRONG_AXIS
    own = [triangles(one.seen) for one in found.attention if one.site.kind in ("self", "decoder")]
    if found.outputs.writes:
        ways = dict.fromkeys(_of_mask(*way) for way in own)
        yield from (way for way in ways if way is not None)
        if not own and not wrong_axis and FUTURE in broken:
            yield NO_MASK
    elif broken & {PADDING, DOCUMENTS} and any(not itself for _, itself, _ in own):
        yield CONVENTION
    if SCALE in broken:
        yield NO_SCALE
    if EVALUATION in broken:
        yield ALWAYS
    if DROPOUT in broken:
        yield PLACE


def triangles(seen: Tensor) -> tuple[bool, bool, bool]:
    """Whether anything earlier, the token itself, anything later is read, from bool (T,T)."""
    return bool(seen.tril(-1).any()), bool(seen.diagonal().any()), bool(seen.triu(1).any())


def _of_mask(earlier: bool, itself: bool, later: bool) -> Mistake | None:
    if not later:
        return None
    if earlier:
        return NO_MASK
    return INVERTED if itself else CONVENTION


def unexplained(mistakes: Sequence[Mistake], all_laws: Sequence[Law]) -> list[Law]:
    """Broken laws that none of the mistakes breaks."""
    explained = {name for mistake in mistakes for name in mistake.breaks}
    return [law for law in all_laws if law.state == BROKEN and law.name not in explained]
