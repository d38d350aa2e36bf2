"""`minitf-benchmark`: measure speed and memory here, on this machine."""

from __future__ import annotations

import os

from omegaconf import DictConfig

from minitf.command_line import Job, entry
from minitf.config import build


def main() -> None:
    """Read the command line and measure."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    entry("benchmark", measure)


def measure(cfg: DictConfig, job: Job) -> None:
    """Run one benchmark; all figures go to bench.json in the folder of this job.

    Args:
        cfg: as in configs/benchmark.yaml.
        job: where the folder is.
    """
    from minitf.files import write_json

    figures = build(cfg.bench)(folder=job.folder)
    write_json(job.folder / "bench.json", figures)
    print(f"\nall figures: {job.folder / 'bench.json'}")
