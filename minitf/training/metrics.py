"""The history of a run: metrics.csv in its folder."""

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from minitf.errors import DataError
from minitf.files import atomic_file

FILE = "metrics.csv"


class MetricsCsv(Logger):
    """Append metrics to metrics.csv: one row per call, with the number of optimizer steps done.

    A row is on its way to the disk when log_metrics returns, so a killed run loses nothing. A file that is
    there is continued, never begun anew; a last line that a kill cut short is dropped. A metric that comes up
    for the first time adds a column: then the file is written again, whole or not at all.

    Args:
        run_dir: the run's folder.

    Raises:
        DataError: there is a metrics.csv that this class has not written.
    """

    def __init__(self, run_dir: str | Path) -> None:
        super().__init__()
        self.path = Path(run_dir) / FILE
        self._file: TextIO | None = None
        self._columns = _columns(read_metrics(self.path)) if self.path.exists() else ["step"]
        self._whole = not self.path.exists()  # an existing file may end in half a line

    @property
    def name(self) -> str:
        """Return the kind of this logger."""
        return "csv"

    @property
    def version(self) -> str:
        """Return "": the run's folder tells runs apart."""
        return ""

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the config is kept in the run's folder."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one row.

        Args:
            metrics: name -> value.
            step: optimizer steps done.
        """
        row = {"step": step, **metrics}
        new = [name for name in row if name not in self._columns]
        if new or not self._whole:
            rows = read_metrics(self.path) if self.path.exists() else []
            self._columns += new
            self._rewrite(rows)
        try:
            if self._file is None:
                self._file = open(self.path, "a", encoding="utf-8", newline="")  # noqa: SIM115 - kept open
            self._file.write(self._lines([row]))
            self._file.flush()
        except OSError as error:  # a full disk: what got through of the line is dropped by the next reader
            error.filename = str(self.path)
            with suppress(OSError):
                self._close()
            raise

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Drop the rows beyond `step`: a run that goes on from there makes them again. Begin the file if need be.

        Args:
            step: the last step to keep.
        """
        rows = read_metrics(self.path) if self.path.exists() else []
        self._rewrite([row for row in rows if row["step"] <= step])

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the file; a later row opens it again."""
        self._close()

    def _rewrite(self, rows: list[dict[str, float]]) -> None:
        self._close()
        with atomic_file(self.path) as file:
            text = ",".join(self._columns) + "\n" + self._lines(rows)
            file.write(text.encode("utf-8"))
        self._whole = True

    def _lines(self, rows: Iterable[Mapping[str, float]]) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([row.get(name, "") for name in self._columns] for row in rows)
        return out.getvalue()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Return the rows of a metrics.csv in order: "step" (int) and the metrics that the row has (float).

    Args:
        path: the file, or the folder of the run that it lies in.

    Raises:
        DataError: it is no metrics.csv.
        FileNotFoundError: there is none.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    try:
        return _parse(path)
    except (ValueError, TypeError, csv.Error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{str(path)!r} is damaged ({error}): bring it back, or start a new run") from error


def _parse(path: Path) -> list[dict[str, float]]:
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]  # what follows the last line end was cut short
    reader = csv.DictReader(io.StringIO(whole))
    if whole and (not reader.fieldnames or reader.fieldnames[0] != "step"):
        raise DataError(f"{str(path)!r} is no metrics.csv of a run: its first column is not 'step'")
    rows = []
    for line in reader:
        row: dict[str, float] = {name: float(value) for name, value in line.items() if value}
        row["step"] = int(line["step"])
        rows.append(row)
    return rows


def _columns(rows: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(["step", *(name for row in rows for name in row)]))
