"""The `.py` files of the running Python's standard library: real program text that needs no download."""

import os
import platform
import sysconfig
import tokenize
from pathlib import Path

from minitf.data.gold_tokens import PYTHON_ROLES, python_gold
from minitf.data.text import Documents, check_val_fraction, in_validation
from minitf.errors import DataError

# Tests, tables, generated text, programs of their own and what others installed: no typical library code.
LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages"}
    | {"encodings", "pydoc_data", "idlelib", "lib2to3", "turtledemo"}
)
FEWEST_FILES = 300


class PythonStdlib:
    """Documents: one per file of the standard library, split by a stable hash of the file's path in it.

    Args:
        val_fraction: part of the characters that is validation, between 0 and 1.
    """

    name = "python_stdlib"
    roles = PYTHON_ROLES
    token_gold = staticmethod(python_gold)

    def __init__(self, val_fraction: float = 0.05) -> None:
        self.val_fraction = check_val_fraction(val_fraction)

    def documents(self) -> Documents:
        """Read and split all files (about 9 M characters, one second).

        Raises DataError if fewer than 300 files are found: some systems leave the library out or pack it into a zip.
        """
        root = Path(sysconfig.get_path("stdlib"))
        texts: dict[str, str] = {}
        unreadable = []
        for name in _file_names(root):
            try:
                with tokenize.open(root / name) as file:
                    texts[name] = file.read()
            except (SyntaxError, UnicodeDecodeError, OSError):
                unreadable.append(name)
        if len(texts) < FEWEST_FILES:
            raise DataError(
                f"data=python_stdlib found {len(texts)} readable .py files in {root}, fewer than {FEWEST_FILES}: this "
                "Python has no complete standard library as source. Use another Python (python.org, conda, pyenv), "
                "or your own text: data=text_files data.source.path=FOLDER"
            )
        sizes = [len(text) for text in texts.values()]
        chosen = dict(zip(texts, in_validation(list(texts), sizes, self.val_fraction), strict=True))
        return Documents(
            train=[text for name, text in texts.items() if not chosen[name]],
            val=[text for name, text in texts.items() if chosen[name]],
            val_names=[name for name in texts if chosen[name]],
            record={
                "source": self.name,
                "python": platform.python_version(),
                "files": len(texts),
                "unreadable_files": unreadable,
                "characters": sum(sizes),
                "split": f"by file: stable hash of its path, {self.val_fraction:g} of the characters for validation",
                "licence": "Python Software Foundation License",
            },
        )


def _file_names(root: Path) -> list[str]:
    """Paths of the wanted files below `root`, sorted, with forward slashes on every system."""
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [subfolder for subfolder in subfolders if subfolder not in LEFT_OUT]
        here = Path(folder).relative_to(root)
        names += [(here / file).as_posix() for file in files if file.endswith(".py")]
    return sorted(names)
