"""Functions of a folder as their source tells them, without importing it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SECTIONS = ("Args", "Returns", "Raises", "Source")


@dataclass(frozen=True)
class Function:
    """A function at the top of a module.

    Args:
        target: dotted name.
        doc: docstring, without its indentation.
        arguments: name -> default as text, None where there is none.
        returns: annotation as text.
    """

    target: str
    doc: str
    arguments: dict[str, str | None]
    returns: str

    @cached_property
    def sections(self) -> dict[str, str]:
        """Parts of the docstring by their heads; "": what stands before the first of them."""
        parts = re.split(rf"^({'|'.join(SECTIONS)}): *", self.doc, flags=re.MULTILINE)
        return {"": parts[0], **dict(zip(parts[1::2], map(inspect.cleandoc, parts[2::2]), strict=True))}

    @property
    def line(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.doc.split("\n\n")[0].split())

    def told_of(self, argument: str) -> str:
        """What the docstring says about an argument; "" for nothing."""
        for entry in re.split(r"\n(?=\S)", self.sections.get("Args", "")):
            names, _, told = entry.partition(": ")
            if argument in names.split(", "):
                return " ".join(told.split())
        return ""


def functions(folder: str) -> Iterator[Function]:
    """Public functions of the modules of a folder, in the order of their dotted names.

    Args:
        folder: inside minitf, such as "studies/probes".
    """
    found = []
    for path in (PACKAGE / folder).glob("*.py"):
        tree = _tree(path)
        module = ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                returns = ast.unparse(node.returns) if node.returns else ""
                arguments = dict(_arguments(node.args, tree))
                found.append(Function(f"{module}.{node.name}", ast.get_docstring(node) or "", arguments, returns))
    return iter(sorted(found, key=lambda function: function.target))


def _arguments(args: ast.arguments, tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    places = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(places) - len(args.defaults)), *args.defaults]
    for argument, default in [
        *zip(places, defaults, strict=True),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]:
        yield argument.arg, None if default is None else _value(default, tree)


def _value(node: ast.expr, tree: ast.Module) -> str:
    """A default as text; of a constant of this or another module of minitf, what it stands for."""
    if not isinstance(node, ast.Name):
        return ast.unparse(node)
    for one in tree.body:
        if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in one.targets):
            return _value(one.value, tree)
        if isinstance(one, ast.ImportFrom) and one.module and any(alias.name == node.id for alias in one.names):
            path = PACKAGE.parent / f"{one.module.replace('.', '/')}.py"
            return _value(node, _tree(path)) if path.is_file() else node.id
    return node.id


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
