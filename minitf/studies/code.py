"""Which code can change a result: the modules that it names, and all that these import."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import minitf

ROOT = Path(minitf.__file__).parent
DOTTED = re.compile(r"minitf(\.\w+)+")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
RUNS = ("minitf.studies.cell",)  # every result comes through it
BUILT = ("blocks", "cache", "models", "generation", "data", "training", "lab")  # what a config can be built from


def targets(node: Any) -> set[str]:
    """Every `_target_` of a tree of mappings and lists."""
    if isinstance(node, Mapping):
        own = {node["_target_"]} if isinstance(node.get("_target_"), str) else set()
        return own.union(*(targets(child) for child in node.values()))
    return set().union(*(targets(child) for child in node)) if isinstance(node, list | tuple) else set()


def code_hash(named: Iterable[str], builds: bool = False) -> str:
    """A hash of the code behind dotted names.

    What minitf's modules import is followed, and so is a dotted name in their texts; comments and docstrings do not
    count. Of a module elsewhere only its own file counts, as it is.

    Args:
        named: of classes and functions, such as "minitf.blocks.ffn.gated.Gated".
        builds: also every part that a config can name, for code that composes configs of its own.
    """
    named = set(named)
    own = {name for name in named if name.split(".")[0] == "minitf"}
    files = _behind(frozenset(own | set(RUNS)))
    if builds:
        files |= {file for part in BUILT for file in (ROOT / part).rglob("*.py")}
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + _instructions(file) + b"\0")
    for name in sorted(named - own):
        if (file := _elsewhere(name.rpartition(".")[0])) is not None:
            found.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


@functools.cache
def _behind(named: frozenset[str]) -> frozenset[Path]:
    waiting = [file for name in named for file in _files(name)]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += _imported(file)
    return frozenset(seen)


@functools.cache
def _files(name: str) -> tuple[Path, ...]:
    """The module of a dotted name, which may go on with names inside it, and the packages around it."""
    found, place = [], ROOT
    for part in name.split(".")[1:]:
        if (place / part / "__init__.py").is_file():
            place = place / part
            found.append(place / "__init__.py")
            continue
        if (place / f"{part}.py").is_file():
            found.append(place / f"{part}.py")
        break
    return tuple(found)


@functools.cache
def _imported(file: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            names.add(node.value)
    return tuple(path for name in names if name.split(".")[0] == "minitf" for path in _files(name))


@functools.cache
def _instructions(file: Path) -> bytes:
    """What a module says without its comments and docstrings, as a hash."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def _elsewhere(module: str) -> Path | None:
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin and Path(spec.origin).is_file():
            return Path(spec.origin)
    return None
