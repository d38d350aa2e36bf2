"""Trains one toy run again and again in child processes that are killed, or that find the disk full.

Started by test_crashes.py: python crashing.py {kill,fill} FOLDER HOME N, where HOME has room and holds the corpus.
The libraries are imported once, and every part of the run is a fork of this process, so that a part takes no longer
than its training. Prints one JSON line.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from runs import TOY, train_here

from minitf.commands.start import read_record
from minitf.errors import ConfigError, DataError
from minitf.training.checkpoint import find_checkpoint, read_checkpoint
from minitf.training.metrics import read_metrics
from minitf.training.status import read_status

SETTINGS = {
    "kill": ["trainer.max_steps=500", "trainer.val_every=50", "model.d_model=64"],
    "fill": ["trainer.max_steps=60", "trainer.val_every=20", "model.d_model=96"],
}
FREQUENT = ["callbacks.save_every=1", "model.dropout=0.1", "trainer.accumulate=2"]

HOME = Path(sys.argv[3])
ROOM = (0, 300_000, 4_000_000, 3_200_000, 1_000_000)  # bytes; a checkpoint takes about 2,300,000


def part(folder: Path, overrides: list[str]) -> int:
    """Fork a process that begins the run or goes on with it, quietly; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        torch.set_num_threads(1)
        begun = (folder / "config.yaml").exists()
        train_here(folder, [] if begun else overrides, resume=begun)
        code = 0
    except (ConfigError, DataError) as error:
        (HOME / "error").write_text(str(error))
        code = 2
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def last_step(folder: Path) -> int | None:
    """Step of the newest checkpoint, which must be readable; None where there is none yet."""
    if not list(folder.glob("checkpoints/last-*")):
        return None
    return read_checkpoint(find_checkpoint(folder, "last"))["global_step"]


def kill_at_random(folder: Path, overrides: list[str], n: int) -> dict:
    """Every fifth kill comes at any time since the start, the others while the run trains and saves."""
    draw = random.Random(0)
    steps, statuses, leftovers = [], [], 0
    for i in range(n):
        before = newest(folder)
        pid = part(folder, overrides)
        while i % 5 and newest(folder) == before:
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 0.2 if i % 5 else 1.0))
        os.kill(pid, signal.SIGKILL)
        if wait(pid) != -signal.SIGKILL:
            raise RuntimeError(f"the run ended before kill number {i}: it is too short")
        steps.append(last_step(folder))
        statuses.append((read_status(folder) or {}).get("status"))
        leftovers += len(list(folder.rglob("*.part")))
    return {"steps": steps, "statuses": statuses, "leftovers": leftovers}


def newest(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoints/last-*"))


def fill_the_disk(folder: Path, overrides: list[str], n: int) -> dict:
    """Leave less room each time than the run needs, until it has failed n times; then make room."""
    filler = folder.parent / "filler"
    steps, errors = [], []
    for i in range(n):
        space = os.statvfs(folder.parent)
        free = space.f_bavail * space.f_frsize
        filler.write_bytes(b"x" * max(0, free - ROOM[i]))
        code = wait(part(folder, overrides))
        steps.append(last_step(folder))
        errors.append([code, (HOME / "error").read_text() if code == 2 else ""])
        filler.unlink()
    return {"steps": steps, "errors": errors}


def main() -> None:
    kind, folder, n = sys.argv[1], Path(sys.argv[2]), int(sys.argv[4])
    overrides = [*TOY, *SETTINGS[kind], *FREQUENT, f"data.source.path={HOME / 'corpus'}"]
    whole = HOME / f"whole-{kind}"
    if wait(part(whole, overrides)):
        raise RuntimeError((HOME / "error").read_text())
    told = {"kill": kill_at_random, "fill": fill_the_disk}[kind](folder, overrides, n)
    code = wait(part(folder, overrides))
    a, b = (read_checkpoint(find_checkpoint(run, "last")) for run in (whole, folder))
    rows = [[{k: v for k, v in r.items() if "per_s" not in k} for r in read_metrics(run)] for run in (whole, folder)]
    told |= {
        "code": code,
        "step": b["global_step"],
        "same weights": all(torch.equal(a["state_dict"][k], b["state_dict"][k]) for k in a["state_dict"]),
        "same history": rows[0] == rows[1],
        "status": read_status(folder)["status"],
        "resumed": len(read_record(folder).get("resumed", [])),
        "left": sorted(path.name for path in folder.rglob("*.part")),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
