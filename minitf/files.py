"""Whole files or none: how every file that is kept is written."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_PART = (".tmp-", ".part")  # how the name of a file begins and ends until it is complete


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears under `path` only when it is complete and on the disk.

    The temporary file lies in the target's own folder, because a move between file systems is a copy that can
    be cut short. If the block raises, an older file of that name stays as it was.

    Args:
        path: the final name; its folder is made if it is missing.

    Raises:
        OSError: no space, no permission, and the like; nothing of the new file is left behind. It names the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{_PART[0]}{path.name}-{os.getpid()}{_PART[1]}")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):  # a disk that has become read-only: what is raised must be about the file
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    _sync_folder(path.parent)


def user_path(text: str) -> Path:
    """A path as a user typed it: `~` is the home folder, unless a folder is really called so.

    Args:
        text: as typed.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~name, of nobody's home
        return Path(text)


def check_writable(folder: str | Path) -> None:
    """Find out before the work whether a folder can be written, or made; nothing is made yet.

    Args:
        folder: there or not.

    Raises:
        OSError: it is a file, or below one, or may not be written. It names the place.
    """
    place = Path(folder).absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    if not os.access(place, os.W_OK | os.X_OK):
        read_only = hasattr(os, "statvfs") and os.statvfs(place).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, os.strerror(code), str(place))  # Python makes a PermissionError of the latter


def remove_parts(folder: str | Path) -> None:
    """Remove what `atomic_file` left in a folder, and below it, when its process was killed.

    Args:
        folder: nobody may be writing in it.
    """
    for part in Path(folder).rglob(f"{_PART[0]}*{_PART[1]}"):
        part.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` as indented UTF-8 JSON, whole or not at all.

    Args:
        path: the file to write.
        value: dicts, lists, strings, numbers, bools and None.

    Raises:
        TypeError: the value holds something else.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk; Windows has no handle for a folder and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
