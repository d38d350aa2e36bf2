"""The user's own text: one file, a folder, or a glob of `*.txt`, `*.jsonl` and `*.parquet`."""

import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from minitf.data.rows import split_documents
from minitf.data.text import Documents, check_val_fraction
from minitf.errors import ConfigError, DataError

LOADERS = {".jsonl": "json", ".parquet": "parquet"}  # file name ending: loader of `datasets`
ENDINGS = (".txt", *LOADERS)


class TextFiles:
    """Documents: a whole `.txt` file, or one row of a `.jsonl` or `.parquet` file.

    Text is read as UTF-8 on every machine; a byte order mark is dropped, and the line ends of `.txt` files become line
    feeds. Documents are split by a stable hash of their content, so equal ones fall on the same side. Where there are
    fewer than 1 / val_fraction of them, each is split by place: its end is validation.

    Args:
        path: a file, a folder (searched with its subfolders) or a glob, relative to where the command was started.
        val_fraction: part of the characters that is validation, between 0 and 1.
        column: name of the column with the text in `.jsonl` and `.parquet` files.

    Raises ConfigError for a path or column that is no text or empty.
    """

    name = "text_files"

    def __init__(self, path: str, val_fraction: float = 0.05, column: str = "text") -> None:
        for name, value in [("path", path), ("column", column)]:
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(
                    f"data.source.{name} must be a text that is not empty, got {value!r}: "
                    f"""write 'data.source.{name}="..."'"""
                )
        self.path = path
        self.val_fraction = check_val_fraction(val_fraction)
        self.column = column

    def documents(self) -> Documents:
        """Read and split all files. Raises DataError that names the file, and the byte or row that cannot be used."""
        files = _find(self.path)
        named = [document for file in files for document in self._read(file) if document[1]]
        names = [name for name, _ in named]
        texts = [text for _, text in named]
        record = {
            "source": self.name,
            "path": self.path,
            "files": len(files),
            "documents": len(texts),
            "characters": sum(map(len, texts)),
            "licence": "the user's own text",
        }
        return split_documents(texts, names, self.val_fraction, record)

    def _read(self, file: Path) -> Iterator[tuple[str, str]]:
        """(name, text) of each document in `file`."""
        ending = file.suffix.lower()
        if ending == ".txt":
            text = _decode(file).removeprefix("\ufeff")
            yield str(file), text.replace("\r\n", "\n").replace("\r", "\n")
            return
        if ending == ".jsonl":
            _decode(file)  # for its error message: the loader names neither file nor byte
        for row, example in enumerate(_rows(file, LOADERS[ending])):
            if self.column not in example:
                raise DataError(
                    f"{file} has no column {self.column!r}, only {', '.join(sorted(example))}: "
                    "name the column with the text by data.source.column=NAME"
                )
            text = example[self.column]
            if not isinstance(text, str):
                raise DataError(
                    f"{file}, row {row} (counted from 0): column {self.column!r} holds {text!r:.60}, which is no text"
                )
            yield f"{file} row {row}", text


def _find(path: str) -> list[Path]:
    place = Path(path).expanduser()
    if place.is_file():
        if place.suffix.lower() not in ENDINGS:
            raise DataError(f"{place.absolute()} ends with none of {', '.join(ENDINGS)}: rename or convert it")
        return [place]
    pattern = os.path.join(glob.escape(str(place)), "**", "*") if place.is_dir() else str(place)
    found = [Path(name) for name in glob.glob(pattern, recursive=True)]
    files = sorted(file for file in found if file.is_file() and file.suffix.lower() in ENDINGS)
    if not files:
        raise DataError(
            f"data.source.path={path}: no {', '.join('*' + e for e in ENDINGS)} file at {place.absolute()}. "
            "A relative path counts from the folder where the command was started."
        )
    return files


def _decode(file: Path) -> str:
    """Text of a UTF-8 file, its line ends and byte order mark as they are."""
    content = file.read_bytes()
    at = content.find(b"\0")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start
    if at >= 0:
        raise DataError(
            f"{file}: byte 0x{content[at]:02X} at offset {at} (counted from 0) is no UTF-8 text. "
            "Convert the file to UTF-8, or take it out if it is no text."
        )
    return text


def _rows(file: Path, loader: str) -> Iterator[dict]:
    """Rows of a table through `datasets`, streamed: without the copy that would outlive a change of the file."""
    import datasets  # takes a second to import, and only these files need it

    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # the error below says it all
    try:
        with tempfile.TemporaryDirectory() as cache:
            escaped = glob.escape(str(file.absolute()))
            yield from datasets.load_dataset(loader, data_files=escaped, split="train", streaming=True, cache_dir=cache)
    except Exception as error:  # of many kinds, from three libraries
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file} cannot be read as {file.suffix.lower()} ({type(error).__name__}: {error})") from error
    finally:
        datasets.logging.set_verbosity(verbosity)
