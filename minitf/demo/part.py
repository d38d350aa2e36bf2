"""What demo=memory tells about: a row of its table, and the pass that is run."""

from __future__ import annotations

from dataclasses import dataclass, field

from minitf.demo.cost import Cost


@dataclass
class Part:
    """One row of the table.

    Attributes:
        title: its first cell.
        names: modules of the model.
        cost: what all of them cost together; None: there is no formula.
        with_rest: it also has what is counted in no module of a name: a loop calls methods, which the counter cannot
            tell from the model's own steps.
    """

    title: str
    names: list[str] = field(default_factory=list)
    cost: Cost | None = field(default_factory=Cost)
    with_rest: bool = False

    def add(self, name: str, cost: Cost | None) -> None:
        """Another module that belongs to this row."""
        self.names.append(name)
        self.cost = None if cost is None or self.cost is None else self.cost + cost


@dataclass
class Shape:
    """What is run: B rows of T tokens, those of the source S long; `outputs` is the number of rows of the logits."""

    B: int
    T: int
    S: int | None
    outputs: int
