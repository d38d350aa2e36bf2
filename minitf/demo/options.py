"""What the config folder says about its options."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from minitf.config import config_dir, group_options

# a full stop behind these does not end a sentence
_SHORT = r"(?<!\bal)(?<!\beq)(?<!\bsec)(?<!\bfig)(?<!\bapp)(?<!\bvs)(?<!\bcf)"
_SOURCE = re.compile(rf"\bSources?\b(?: [^.:]*)?: (.+?)(?:{_SHORT}\.(?=\s|$)|$)")
_SENTENCE = re.compile(rf".+?{_SHORT}\.(?=\s|$)")


@dataclass
class Option:
    """One yaml file of a config group.

    Attributes:
        override: what selects it.
        comment: the comment at the head of the file.
        target: the class or function that it names, or None.
    """

    override: str
    comment: str
    target: Any

    def line(self, shared: bool) -> str:
        """What it is: the first line of its docstring; the comment of the file where several files name one class."""
        own = _first_sentence(self.comment)
        documented = _first_sentence(_first_line(inspect.getdoc(self.target) or "")) if self.target else ""
        return (own or documented) if shared else (documented or own)

    @property
    def source(self) -> str:
        """Where it comes from, as the comment or the docstring tells it; "" where neither does."""
        for text in (self.comment, *(inspect.getdoc(self.target) or "").split("\n\n")):
            if found := _SOURCE.search(" ".join(text.split())):
                return found[1]
        return ""


def options(group: str) -> list[Option]:
    """Every option of a config group, for example "model/mask"."""
    return [Option(f"{group}={name}", head_comment(group, name), _target(group, name)) for name in group_options(group)]


def head_comment(group: str, name: str) -> str:
    """The comment at the head of an option's file."""
    lines = (config_dir() / group / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# ").strip())
    return " ".join(part for part in comment if not part.startswith("@package"))


def group_line(group: str) -> str:
    """What the options of a group have in common, as the docstring of their package says."""
    modules = [module for option in options(group) if (module := inspect.getmodule(option.target)) is not None]
    packages = Counter(module.__name__.rpartition(".")[0] for module in modules)
    if not packages:
        return ""
    name = packages.most_common(1)[0][0]
    # a package that holds several groups says nothing about this one
    one = modules[0] if name in ("minitf", "minitf.blocks") else importlib.import_module(name)
    return _first_sentence(_first_line(inspect.getdoc(one) or ""))


def _target(group: str, name: str) -> Any:
    """The class or function that a file names, itself or through another file of its group."""
    node = OmegaConf.load(config_dir() / group / f"{name}.yaml")
    if "_target_" in node:
        module, _, attribute = node["_target_"].rpartition(".")
        return getattr(importlib.import_module(module), attribute)
    for parent in node.get("defaults", []):
        if isinstance(parent, str) and parent != "_self_":
            return _target(group, parent)
    return None


def _first_line(doc: str) -> str:
    """The first paragraph of a docstring, without its source."""
    return " ".join(doc.split("\n\n")[0].split())


def _first_sentence(text: str) -> str:
    text = re.split(r"(?<![\w,;])Sources?\b[^.:]*: ", text)[0].strip()
    found = _SENTENCE.match(text)
    return (found[0] if found else text).rstrip(".")
