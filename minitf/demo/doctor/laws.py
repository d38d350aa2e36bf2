"""From what was seen to laws that hold or do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minitf.demo.doctor.attention import NOISE, Attention, Weights
from minitf.demo.doctor.examine import Examination
from minitf.demo.doctor.outputs import LEAK
from minitf.demo.doctor.paths import APART

HOLDS, BROKEN, DESIGN, NOT_ASKED = "holds", "BROKEN", "by design?", "not asked"
ROWS, COLUMNS = "the weights of a query sum to 1", "the weights of a key need not sum to 1"
ITSELF = "a token reads itself"
FUTURE, PAST = "no output knows later tokens", "outputs know earlier tokens"
PADDING, DOCUMENTS = "no output knows what padding holds", "no output knows another document"
ALONE, ORDER = "a query does not change another's weights", "keys and values may stand in any order"
PATHS = "the fast path equals the definition"
SCALE, EVALUATION = "scores are divided by the root of d", "two passes in evaluation give the same"
DROPOUT, CACHE = "dropout in training drops weights", "a cache changes no output"
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
    """Every law, with the numbers of all modules together; where two paths differ, the worse of the two."""
    if found.definition is None:
        return laws_of_path(found)
    return [_worse(*both) for both in zip(laws_of_path(found), laws_of_path(found.definition), strict=True)]


def _worse(fast: Law, definition: Law) -> Law:
    if fast.state == definition.state:
        return fast
    worse = min(fast, definition, key=lambda law: (BROKEN, DESIGN, HOLDS, NOT_ASKED).index(law.state))
    return Law(worse.name, worse.state, ("fast path: " if worse is fast else "definition: ") + worse.seen)


def laws_of_path(found: Examination) -> list[Law]:
    """Every law on one of the two paths."""
    every = weights(found)
    if every:
        first = [_rows(every), _columns(every)]
    else:
        first = [Law(name, NOT_ASKED, "there is no attention") for name in (ROWS, COLUMNS)]
    first += [_alone(every), _order(every)]
    if found.attention:
        first += [law(found.attention) for law in (_itself, _scale, _dropout)] + [_paths(found)]
    else:
        why = "queries and keys cannot be given" if every else "there is no attention"
        first += [Law(name, NOT_ASKED, why) for name in (ITSELF, SCALE, DROPOUT, PATHS)]
    return [*first, _future(found), _past(found), *_strangers(found), _evaluation(found), _cache(found)]


def state(all_laws: Sequence[Law], name: str) -> str:
    """That of the law with this name."""
    return next(law.state for law in all_laws if law.name == name)


def weights(found: Examination) -> list[Weights]:
    """Those of all modules."""
    return [*found.attention, *found.others]


def by_columns(one: Weights) -> bool:
    """Whether the weights of each key sum to 1, and those of each query do not; those of a query that comes alone are
    then all 1."""
    return one.ones or (_are_one([one.columns]) and not _are_one([one.rows]) and one.columns != (0.0, 0.0))


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
    if any(one.ones for one in modules):
        told += ": every weight is 1, so each key fills up each query that comes alone"
    return Law(COLUMNS, BROKEN if any(by_columns(one) for one in modules) else HOLDS, told)


def _alone(modules: list[Weights]) -> Law:
    asked = [one.rows_alone for one in modules if one.rows_alone is not None]
    if not asked:
        return Law(ALONE, NOT_ASKED, "queries cannot be given" if modules else "there is no attention")
    if all(asked):
        return Law(ALONE, HOLDS, "one query exchanged: the others' weights stay")
    return Law(ALONE, BROKEN, "one query exchanged: other weights elsewhere")


def _order(modules: list[Weights]) -> Law:
    if any(one.random for one in modules):
        return Law(ORDER, NOT_ASKED, "the weights are others each time")
    asked = [one.swaps for one in modules if one.swaps is not None]
    if not asked:
        why = "places act in the scores, or no query reads two keys" if modules else "there is no attention"
        return Law(ORDER, NOT_ASKED, why)
    told = f"two keys and values swapped, in {len(asked)} of {len(modules)} modules"
    return Law(ORDER, HOLDS if all(asked) else BROKEN, told)


def _itself(modules: list[Attention]) -> Law:
    """A mask may leave it out, but a first token then reads nothing."""
    asked = [one.seen for one in modules if one.site.kind != "cross"]
    if not asked:
        return Law(ITSELF, NOT_ASKED, "keys are those of another sequence")
    never = [int((~seen.diagonal()).sum()) for seen in asked]
    if not any(never):
        return Law(ITSELF, HOLDS, f"every token, in {len(asked)} of {len(modules)} modules")
    nothing = max(int((~seen.any(-1)).sum()) for seen in asked)
    told = f"{max(never)} of {len(asked[0])} tokens do not, in {sum(map(bool, never))} of {len(asked)} modules"
    return Law(ITSELF, DESIGN, told + (f"; {nothing} of them reads nothing" if nothing else ""))


def _paths(found: Examination) -> Law:
    if not found.paths:
        return Law(PATHS, NOT_ASKED, "the weights are others each time")
    apart = {(one.site, kind): share for one in found.paths for kind, share in one.apart.items()}
    (site, _), worst = max(apart.items(), key=lambda item: item[1])
    if worst > APART:
        kinds = _kinds(kind for (_, kind), share in apart.items() if share > APART)
        told = f"{kinds}: {worst:.2g} of the largest output apart, most in {site.kind} attention of layer {site.layer}"
        return Law(PATHS, BROKEN, told)
    if not worst:
        return Law(PATHS, NOT_ASKED, "every module computes by definition")
    return Law(PATHS, HOLDS, f"{_kinds(kind for _, kind in apart)}: {worst:.1g} of the largest output apart")


def _kinds(names: Iterable[str]) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last} rows" if most else f"{last} rows"


def _scale(modules: list[Attention]) -> Law:
    worst = max(modules, key=lambda one: (has_no_scale(one), one.score_std / one.width**0.5))
    told = f"q and k of variance 1 give scores of deviation {worst.score_std:.2f} "
    told += f"(d {worst.width}, root {worst.width**0.5:.2f})"
    missing = [one for one in modules if has_no_scale(one)]
    if not missing:
        small = all(one.width < LEAST_WIDTH for one in modules)
        return Law(SCALE, NOT_ASKED, f"d {worst.width} is too small to tell") if small else Law(SCALE, HOLDS, told)
    felt = max(missing, key=lambda one: one.own_spread / one.width**0.5)
    told += f"; the model's own q.k deviate by {felt.own_spread:.2f}, its largest weight is {felt.top:.2f}"
    # a model that was begun with small queries does without, as T5
    return Law(SCALE, BROKEN if felt.own_spread > FELT * felt.width**0.5 else DESIGN, told)


def _dropout(modules: list[Attention]) -> Law:
    if any(one.random for one in modules):
        return Law(DROPOUT, NOT_ASKED, "the weights are others each time")
    shares = [one.dropout for one in modules]
    if None in shares:
        return Law(DROPOUT, BROKEN, "training changes the weights, but drops none or changes those it keeps")
    most = max(shares)
    return (
        Law(DROPOUT, HOLDS, f"{most:.1%} of the weights are dropped")
        if most
        else Law(DROPOUT, NOT_ASKED, "there is no dropout on weights here")
    )


def _future(found: Examination) -> Law:
    effect, writes = found.outputs.future, found.outputs.writes
    if not writes:
        return Law(FUTURE, NOT_ASKED, "this model does not write token by token")
    return _leak(FUTURE, "a later token", effect, "the outputs are others each time")


def _past(found: Examination) -> Law:
    seen = found.outputs
    if seen.past is None:
        return Law(PAST, NOT_ASKED, "one output a row" if not seen.random else "the outputs are others each time")
    effect = seen.past if seen.writes else max(seen.past, seen.future)
    if effect > LEAK:
        return Law(PAST, HOLDS, _moves("an earlier token", effect))
    return Law(
        PAST, BROKEN if weights(found) else DESIGN, "a token acts on its own output alone, or on those before it"
    )


def _strangers(found: Examination) -> list[Law]:
    seen = found.outputs
    why = "the outputs are others each time" if seen.random else "the model takes no such rows"
    return [
        _leak(PADDING, "a token at padding", seen.padding, why),
        _leak(DOCUMENTS, "another document", seen.documents, why),
    ]


def _moves(what: str, effect: float) -> str:
    return f"{what} has {effect:.2g} of a token's largest effect"


def _leak(name: str, what: str, effect: float | None, why_not: str) -> Law:
    if effect is None:
        return Law(name, NOT_ASKED, why_not)
    return Law(name, BROKEN if effect > LEAK else HOLDS, _moves(what, effect))


def _evaluation(found: Examination) -> Law:
    broken = found.outputs.random or any(one.random for one in weights(found))
    return Law(
        EVALUATION, BROKEN if broken else HOLDS, f"a second pass gives {'other' if broken else 'the same'} numbers"
    )


def _cache(found: Examination) -> Law:
    apart = found.outputs.cached
    if apart is None:
        return Law(
            CACHE, NOT_ASKED, "the outputs are others each time" if found.outputs.random else "the model keeps none"
        )
    return Law(CACHE, BROKEN if apart > LEAK else HOLDS, f"one by one, logits are {apart:.1g} of their range apart")
