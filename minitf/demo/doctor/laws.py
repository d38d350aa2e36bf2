"""From what was seen to laws that hold or do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitf.demo.doctor.attention import NOISE, Attention, Weights
from minitf.demo.doctor.examine import Examination
from minitf.demo.doctor.outputs import LEAK

HOLDS, BROKEN, DESIGN, NOT_ASKED = "holds", "BROKEN", "by design?", "not asked"
ROWS, COLUMNS = "the weights of a query sum to 1", "those of a key do not"
FUTURE, PAST = "no output knows later tokens", "earlier tokens are read"
PADDING, DOCUMENTS = "padding is not read", "another document is not read"
ALONE, ORDER = "a query is not changed by another", "keys may stand in any order"
SCALE, EVALUATION = "scores are divided by root of d", "evaluation is the same each time"
DROPOUT, CACHE = "dropout drops weights", "with a cache as without"
FELT = 0.75  # of root of d: from there on the model's own products are as wide as those of q and k of variance 1
LEAST_WIDTH = 4  # below, root of d and 1 are too near


@dataclass(frozen=True)
class Law:
    """One law and what was found.

    Args:
        name: in words.
        state: HOLDS or BROKEN; DESIGN: it does not hold, but there are good models in which it does not; NOT_ASKED:
            the model has nothing to ask.
        seen: the numbers.
    """

    name: str
    state: str
    seen: str


def laws(found: Examination) -> list[Law]:
    """Every law, with the numbers of all modules together."""
    every = weights(found)
    if every:
        first = [_rows(every), _columns(every)]
    else:
        first = [Law(name, NOT_ASKED, "there is no attention") for name in (ROWS, COLUMNS)]
    if found.attention:
        first += [law(found.attention) for law in (_alone, _order, _scale, _dropout)]
    else:
        why = "queries and keys cannot be given" if every else "there is no attention"
        first += [Law(name, NOT_ASKED, why) for name in (ALONE, ORDER, SCALE, DROPOUT)]
    return [*first, _future(found), _past(found), *_strangers(found), _evaluation(found), _cache(found)]


def state(all_laws: Sequence[Law], name: str) -> str:
    """That of the law with this name."""
    return next(law.state for law in all_laws if law.name == name)


def weights(found: Examination) -> list[Weights]:
    """Those of all modules."""
    return [*found.attention, *found.others]


def by_columns(one: Weights) -> bool:
    """Whether the weights of each key sum to 1, and those of each query do not."""
    return _are_one([one.columns]) and not _are_one([one.rows]) and one.columns != (0.0, 0.0)


def has_no_scale(one: Attention) -> bool:
    """Whether the scores are the products as they are."""
    return one.plain and one.width >= LEAST_WIDTH and one.score_std > one.width**0.25


def _are_one(ends: list[tuple[float, float]]) -> bool:
    return all(abs(end - 1) < NOISE for pair in ends for end in pair)


def _range(pairs: list[tuple[float, float]]) -> str:
    low, high = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    return f"sums {low:.3f} to {high:.3f}"


def _rows(modules: list[Weights]) -> Law:
    told = _range([one.rows for one in modules])
    if any(one.random for one in modules):
        return Law(ROWS, BROKEN, f"{told}, others each time")
    if _are_one([one.rows for one in modules]):
        return Law(ROWS, HOLDS, told)
    if any(by_columns(one) for one in modules):
        return Law(ROWS, BROKEN, told)
    if any(one.rows == (0.0, 0.0) for one in modules):
        return Law(ROWS, BROKEN, f"{told}: some module reads nothing")
    return Law(ROWS, DESIGN, f"{told}: no distribution, as with sigmoid, off-by-one or a sink of its own")


def _columns(modules: list[Weights]) -> Law:
    told = _range([one.columns for one in modules])
    return Law(COLUMNS, BROKEN if any(by_columns(one) for one in modules) else HOLDS, told)


def _alone(modules: list[Attention]) -> Law:
    broken = any(not one.rows_alone for one in modules)
    return Law(ALONE, BROKEN if broken else HOLDS, "another query, " + ("other" if broken else "the same") + " weights")


def _order(modules: list[Attention]) -> Law:
    if any(one.random for one in modules):
        return Law(ORDER, NOT_ASKED, "the weights are others each time")
    asked = [one.swaps for one in modules if one.swaps is not None]
    if not asked:
        return Law(ORDER, NOT_ASKED, "places act in the scores, or no query reads two keys")
    told = f"keys swapped with their values in {len(asked)} of {len(modules)} modules"
    return Law(ORDER, HOLDS if all(asked) else BROKEN, told)


def _scale(modules: list[Attention]) -> Law:
    worst = max(modules, key=lambda one: (has_no_scale(one), one.score_std / one.width**0.5))
    told = (
        f"q, k of variance 1: scores of deviation {worst.score_std:.2f} (d {worst.width}, root {worst.width**0.5:.2f})"
    )
    missing = [one for one in modules if has_no_scale(one)]
    if not missing:
        small = all(one.width < LEAST_WIDTH for one in modules)
        return Law(SCALE, NOT_ASKED, f"d {worst.width} is too small to tell") if small else Law(SCALE, HOLDS, told)
    felt = max(missing, key=lambda one: one.own_spread / one.width**0.5)
    told += f"; own q.k {felt.own_spread:.2f}, largest weight {felt.top:.2f}"
    # a model that was begun with small queries does without, as T5
    return Law(SCALE, BROKEN if felt.own_spread > FELT * felt.width**0.5 else DESIGN, told)


def _dropout(modules: list[Attention]) -> Law:
    if any(one.random for one in modules):
        return Law(DROPOUT, NOT_ASKED, "the weights are others each time")
    shares = [one.dropout for one in modules]
    if None in shares:
        return Law(DROPOUT, BROKEN, "training changes the weights, but drops none or changes those it keeps")
    most = max(shares)
    return Law(DROPOUT, HOLDS, f"{most:.1%} of them") if most else Law(DROPOUT, NOT_ASKED, "there is none")


def _future(found: Examination) -> Law:
    effect, writes = found.outputs.future, found.outputs.writes
    if not writes:
        return Law(FUTURE, NOT_ASKED, "this model does not write token by token")
    return _leak(FUTURE, effect, "the outputs are others each time")


def _past(found: Examination) -> Law:
    seen = found.outputs
    if seen.past is None:
        return Law(PAST, NOT_ASKED, "one output a row" if not seen.random else "the outputs are others each time")
    effect = seen.past if seen.writes else max(seen.past, seen.future)
    if effect > LEAK:
        return Law(PAST, HOLDS, f"effect {effect:.2g} of the largest")
    return Law(
        PAST, BROKEN if weights(found) else DESIGN, "a token acts on its own output alone, or on those before it"
    )


def _strangers(found: Examination) -> list[Law]:
    seen = found.outputs
    why = "the outputs are others each time" if seen.random else "the model takes no such rows"
    return [_leak(PADDING, seen.padding, why), _leak(DOCUMENTS, seen.documents, why)]


def _leak(name: str, effect: float | None, why_not: str) -> Law:
    if effect is None:
        return Law(name, NOT_ASKED, why_not)
    return Law(name, BROKEN if effect > LEAK else HOLDS, f"effect {effect:.2g} of the largest")


def _evaluation(found: Examination) -> Law:
    broken = found.outputs.random or any(one.random for one in weights(found))
    return Law(EVALUATION, BROKEN if broken else HOLDS, f"{'other' if broken else 'equal'} numbers in a second pass")


def _cache(found: Examination) -> Law:
    apart = found.outputs.cached
    if apart is None:
        return Law(CACHE, NOT_ASKED, "the outputs are others each time" if found.outputs.random else "it keeps none")
    return Law(CACHE, BROKEN if apart > LEAK else HOLDS, f"logits differ by {apart:.2g} of their range")
