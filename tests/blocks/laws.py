"""The laws that no cell of the property matrix may break."""

import torch
from matrix import LENGTH, Case
from torch import Tensor

from minitf.cache.dynamic import Dynamic
from minitf.positions import NO_TOKEN, segment

DIAGONAL = torch.eye(LENGTH, dtype=torch.bool)


def fast_equals_definition(case: Case) -> None:
    """In value and gradient, of x and of every parameter; all are finite, also where rows are only padding."""
    defined = case.defined
    for name, value in defined.items():
        assert value.isfinite().all(), f"{name} is not finite"
    if case.fast is None:
        return
    ours = case.by_fast
    assert ours.keys() == defined.keys() - {"weights"}
    values = ("output", "copies")
    # one size for all: the gradient of a bias on the keys is a sum of large terms that softmax makes cancel to 0
    size = max(defined[name].abs().max().item() for name in ours if name not in values)
    for name, value in ours.items():
        case.close(value, defined[name], f"fast: {name}", size=0.0 if name in values else size)


def weights_are_what_is_stated(case: Case) -> None:
    """Exactly 0 where hidden; a distribution where the normaliser says so."""
    weights, visible = case.defined["weights"], case.visible[:, None]
    assert not (weights * ~visible).any(), "a hidden key has a weight"
    if "distribution" in case.block.normalize.invariants:
        assert (weights >= 0).all(), "a weight is negative"
        # weights are float32 at least, in every dtype
        worst = (weights.sum(-1) - visible.any(-1).to(weights.dtype)).abs().max()
        assert worst <= 2e-6, f"a row of weights sums to 1 up to {worst:.3g} only"


def hidden_is_hidden(case: Case) -> None:
    """What is later, hidden, padding or another document has no gradient and changes no bit; what is read has."""
    allowed = may_reach(case)
    for found in (case.defined, *([] if case.fast is None else [case.by_fast])):
        reached = found["reach"].abs().amax(-1) > 0
        assert not (reached & ~allowed).any(), f"output reached from (query, key) {pairs(reached & ~allowed)}"
        # a block that reads nothing would do for the above
        read = case.defined["weights"][1].amax(0) > 1e-6
        assert not (read & ~reached).any(), f"weights without gradients at (query, key) {pairs(read & ~reached)}"
        if case.pos is not None:
            assert not found["x"][2].any(), "a row of padding only has a gradient"
        if not case.sees_future:
            assert not reached.triu(1).any(), "a later token reaches an output"
    # the same batch, but copy s has another token s
    changed = case.x.clone()
    changed[3:].masked_scatter_(DIAGONAL[..., None], torch.randn(LENGTH, case.x.size(-1), dtype=case.dtype))
    after = case.read(changed.requires_grad_(), case.pos)[3:]
    differs = (after != case.by_path["copies"]).any(-1).T  # (T, S)
    assert not (differs & ~allowed).any(), f"bits changed by (query, key) {pairs(differs & ~allowed)}"


def pairs(where: Tensor) -> list:
    """The places where a square is true."""
    return where.nonzero().tolist()


def may_reach(case: Case) -> Tensor:
    """(T, S) which token may reach which output of the copied row: what is visible, and the query's own."""
    pos = torch.arange(LENGTH) if case.pos is None else case.pos[1]
    visible, real, document = case.visible[-1], pos >= 0, segment(pos)
    allowed = visible | DIAGONAL
    if case.reads_previous:
        # the key of a visible token was made with the one before it
        allowed[:, :-1] |= visible[:, 1:] & (document[1:] == document[:-1])
    return allowed & real & real[:, None]


def padding_changes_nothing(case: Case) -> None:
    """Each document of a padded or packed row reads as if alone; a row of nothing reads nothing."""
    documents = segment(case.pos[1]) if case.pos is not None else torch.zeros(LENGTH, dtype=torch.long)
    with torch.no_grad():
        for document in documents[documents >= 0].unique():
            inside = documents == document
            alone = case.read(case.x[1:2, inside])[0]
            case.close(case.output[1, inside], alone, f"document {document} in a batch", factor=2)


def pieces_equal_one_pass(case: Case) -> None:
    """Through a cache, in pieces of any size."""
    if case.sees_future:  # a later piece is not in the cache yet
        return
    cache, sizes = Dynamic(), case.cell["pieces"]
    xs, positions = case.x[:3].split(sizes, 1), [None] * len(sizes)
    if case.pos is not None:
        positions = case.pos[:3].split(sizes, 1)
    with torch.no_grad():
        pieces = [case.read(x, pos, cache) for x, pos in zip(xs, positions, strict=True)]
    case.close(torch.cat(pieces, 1) * case.real, case.output * case.real, "pieces", factor=2)


def order_is_in_the_positions(case: Case) -> None:
    """Tokens that are stored in another order, with their positions, give the same outputs in that order.

    Where neither mask nor scheme looks at positions, the order of the tokens itself means nothing.
    """
    if case.reads_previous:  # the token before is the one stored before
        return
    order = torch.randperm(LENGTH)
    pos = torch.arange(LENGTH)[None] if case.pos is None else case.pos[:3]
    expected = (case.output * case.real)[:, order]
    with torch.no_grad():
        moved = case.read(case.x[:3, order], pos[:, order])
        case.close(moved * case.real[:, order], expected, "another storage order", factor=2)
        if case.pos is None and (case.cell["mask"], case.cell["position"]) == ("full", "none"):
            case.close(case.read(case.x[:3, order]), expected, "another order", factor=2)


def memory_has_no_order(case: Case) -> None:
    """Cross-attention reads a set: padding and the order of a source change nothing."""
    memory, query = case.x[:1], case.x[1:2, :3]
    pos = torch.tensor([[0, 1, 2, 3, 4, NO_TOKEN, NO_TOKEN]])
    order = torch.arange(LENGTH) if case.reads_previous else torch.randperm(LENGTH)
    with torch.no_grad():
        ours = case.read_memory(query, memory[:, order], pos[:, order])
        case.close(ours, case.read_memory(query, memory[:, :5]), "memory", factor=2)


LAWS = (
    fast_equals_definition,
    weights_are_what_is_stated,
    hidden_is_hidden,
    padding_changes_nothing,
    pieces_equal_one_pass,
    order_is_in_the_positions,
    memory_has_no_order,
)
