"""What a user can type next, as this user would type it."""

import os
import re
import shlex
import sys
from pathlib import Path


def command(name: str) -> str:
    """How this user starts another command: by its script, or by its installed name."""
    script = Path(sys.argv[0])
    if script.suffix != ".py":
        return f"minitf-{name}"
    return f"python {shlex.quote(os.fspath(script.with_name(f'{name}.py')))}"


def sweep_command(sweep: Path) -> str:
    """How this user gives the command of a sweep again, for the same folder: finished jobs are skipped then.

    Args:
        sweep: the folder of the sweep.
    """
    folder = show_path(sweep)
    if not re.fullmatch(r"[\w./+-]+", folder, re.ASCII):  # Hydra has a grammar of its own for the rest
        folder = "'" + folder.replace("'", "\\'") + "'"
    again = f"hydra.sweep.dir={folder}"
    typed = [argument for argument in sys.argv[1:] if not argument.startswith("hydra.sweep.dir=")]
    return f"{command('train')} {shlex.join([*typed, again])}"


def show_path(folder: Path) -> str:
    """A folder as a user would type it from here."""
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
