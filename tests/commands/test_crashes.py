"""Killed or on a full disk: the older checkpoint is good, and the run that goes on equals the unbroken one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from runs import write_corpus

HERE = Path(__file__).parent


def crash(kind: str, folder: Path, home: Path, n: int, before: list[str] = ()) -> dict:
    write_corpus(home / "corpus")
    done = subprocess.run(
        [*before, sys.executable, str(HERE / "crashing.py"), kind, str(folder), str(home), str(n)],
        cwd=HERE,
        env=os.environ | {"MINITF_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def other_disk():
    """A folder on another file system than the one for temporary files, where there is one."""
    shm = Path("/dev/shm")
    usable = shm.is_dir() and os.access(shm, os.W_OK) and shm.stat().st_dev != os.stat(tempfile.gettempdir()).st_dev
    folder = Path(tempfile.mkdtemp(dir=shm if usable else None))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_thirty_kills_at_random_moments(tmp_path, other_disk):
    told = crash("kill", other_disk / "run", tmp_path, n=30)
    steps = [step or 0 for step in told["steps"]]
    assert steps == sorted(steps)
    assert len(set(steps)) >= 15, "most parts must come to save something"
    assert set(told["statuses"]) <= {"running", None}
    assert (told["code"], told["status"], told["step"]) == (0, "finished", 500)
    assert told["same weights"]
    assert told["same history"]
    assert told["left"] == []


def small_disk(folder: Path) -> list[str]:
    """What to put before a command to give it 20 MB at `folder`: as root, or as root of a name space of its own."""
    mount = f"mount -t tmpfs -o size=20m tmpfs '{folder}'"
    private = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    possible = shutil.which("unshare") and subprocess.run([*private, "true"], capture_output=True).returncode == 0
    return private if possible else []


@pytest.mark.slow
def test_five_runs_on_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    before = small_disk(disk)
    if not before:
        pytest.skip("no file system of its own can be mounted here (no unshare, or not allowed)")
    told = crash("fill", disk / "run", tmp_path, n=5, before=before)
    assert [code for code, _ in told["errors"]] == [2, 2, 2, 2, 2]
    assert all("No space left on device" in message for _, message in told["errors"])
    assert "is whole. When the cause is gone, go on with" in told["errors"][-1][1]
    assert told["steps"][:2] == [None, None]
    assert 0 < told["steps"][2] < told["steps"][3] == told["steps"][4] < 60
    assert (told["code"], told["status"], told["step"]) == (0, "finished", 60)
    assert told["same weights"]
    assert told["same history"]
    assert told["left"] == []
