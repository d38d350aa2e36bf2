"""Prepared data on disk, found by its content: nothing stale, half-written or damaged is ever used.

An entry is a folder named by the sha256 of everything that it depends on. It is written beside its place and renamed,
so it appears whole or not at all; the sha256 of each file in `meta.json` tells an entry that was damaged later. The
files are JSON and arrays of numbers: reading them executes nothing.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from minitf.data.tokenizer import FILE_NAME as TOKENIZER_FILE
from minitf.data.tokenizer import BaseTokenizer, load_tokenizer
from minitf.files import atomic_file

FORMAT = 1  # raise it when what an entry holds changes its meaning
FILES = (TOKENIZER_FILE, "train.npy", "val.npy")
VALUES = "values"  # the name of the JSON among arrays
ABANDONED_AFTER = 24 * 3600.0  # seconds; an unfinished folder that old belongs to a process that was killed
ATTEMPTS = 10  # to put an entry into its place, where other processes do the same


@dataclass
class Prepared:
    """Token ids of both splits and the tokenizer that made them.

    Args:
        tokenizer: trained on the training split.
        train: unsigned integers (n,): bos and the ids of each document, in order.
        val: the same of the validation split.
    """

    tokenizer: BaseTokenizer
    train: np.ndarray
    val: np.ndarray


def cache_folder() -> Path:
    """Where minitf keeps what it can make again: $MINITF_CACHE, else `minitf` in the user's cache folder."""
    chosen = os.environ.get("MINITF_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).expanduser().absolute() / "minitf"


def entry_folder(*facts: object) -> Path:
    """Folder of the entry that depends on exactly these facts (values that JSON can write)."""
    key = hashlib.sha256(json.dumps([FORMAT, *facts], sort_keys=True).encode()).hexdigest()
    return cache_folder() / "prepared" / key[:32]


def load(entry: Path) -> Prepared | None:
    """The prepared data of `entry`, or None if there is none. Raises ValueError if it is damaged."""
    if not entry.is_dir():
        return None
    try:
        meta = (entry / "meta.json").read_bytes()
        hashes = json.loads(meta)["sha256"]
        for name in FILES:
            if _file_hash(entry / name) != hashes[name]:
                raise ValueError(f"{name} has changed since it was written")
        prepared = Prepared(load_tokenizer(entry), _read_ids(entry / "train.npy"), _read_ids(entry / "val.npy"))
        # another process may have replaced the folder between two files
        if (entry / "meta.json").read_bytes() != meta:
            raise ValueError("it was replaced while it was read")
        return prepared
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def save(entry: Path, prepared: Prepared) -> None:
    """Put `prepared` at `entry`, in place of a damaged one. Raises OSError where nothing can be written."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(entry.parent)
    work = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".part-"))
    try:
        prepared.tokenizer.save(work)
        np.save(work / "train.npy", prepared.train)
        np.save(work / "val.npy", prepared.val)
        meta = {"format": FORMAT, "sha256": {name: _file_hash(work / name) for name in FILES}}
        (work / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        # one at a time: between looking at a damaged entry and taking it away, another could put a good one there
        with FileLock(entry.parent.with_name(".prepared.lock")):
            _move_into_place(work, entry)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def save_checked(path: Path, value: Any) -> None:
    """Write JSON values with their sha256, whole or not at all. Raises OSError where nothing can be written."""
    content = {"format": FORMAT, "sha256": _value_hash(value), "value": value}
    with atomic_file(path) as file:
        file.write(json.dumps(content, ensure_ascii=False).encode("utf-8"))


def load_checked(path: Path) -> Any:
    """What `save_checked` wrote; None if there is no such file, or it was damaged or cut, or is of another format."""
    try:
        content = json.loads(path.read_bytes())
        if content["format"] == FORMAT and content["sha256"] == _value_hash(content["value"]):
            return content["value"]
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        pass
    return None


def _value_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read_ids(path: Path) -> np.ndarray:
    """Token ids of a split. Raises ValueError for anything but one row of whole numbers."""
    ids = np.load(path, allow_pickle=False)
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "ui":
        raise ValueError(f"{path.name} holds no token ids")
    return ids


def _move_into_place(work: Path, entry: Path) -> None:
    """Rename `work` to `entry`; a good entry that another process put there meanwhile stays, a damaged one goes."""
    for attempt in range(ATTEMPTS):
        try:
            os.rename(work, entry)
            return
        except OSError:
            if attempt == ATTEMPTS - 1:
                raise
        try:
            if load(entry) is not None:
                return
        except ValueError:
            with contextlib.suppress(OSError):  # another process that found it damaged was faster
                aside = work.with_name(f"{work.name}-old-{attempt}")
                os.rename(entry, aside)
                shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(".part-*"):
        with contextlib.suppress(OSError):  # another process removed it first
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(path, ignore_errors=True)


def _file_hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def save_arrays(path: Path, arrays: dict[str, np.ndarray], values: Any) -> None:
    """Write arrays of numbers and JSON values with their sha256, in one file, whole or not at all. Raises OSError."""
    file = io.BytesIO()
    text = json.dumps([FORMAT, values], ensure_ascii=False).encode("utf-8")
    np.savez(file, **arrays, **{VALUES: np.frombuffer(text, dtype=np.uint8)})
    content = file.getvalue()
    with atomic_file(path) as target:
        target.write(hashlib.sha256(content).digest() + content)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], Any] | None:
    """What `save_arrays` wrote; None if there is no such file, or it was damaged or cut, or is of another format."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        with np.load(io.BytesIO(content[32:]), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        form, values = json.loads(arrays.pop(VALUES).tobytes())
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
        return None
    return (arrays, values) if form == FORMAT else None
