"""`minitf-demo`: numbers at once, without training or files."""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from minitf.command_line import Job, entry, friendly_errors
from minitf.config import build
from minitf.errors import ConfigError
from minitf.typed import check_typed


def main() -> None:
    """Read the command line and print one demo."""
    with friendly_errors("demo"):
        if {"-m", "--multirun"} & set(sys.argv[1:]):
            raise ConfigError("this command has no sweeps: call it once for each value")
        check_typed(sys.argv[1:])
    entry("demo", show)


def show(cfg: DictConfig, job: Job) -> None:
    """Print the demo that was chosen.

    Args:
        cfg: as in configs/demo.yaml.
        job: says what was chosen; this command writes no files.

    Raises:
        ConfigError: data that the demo would not look at, or numbers that do not fit into the memory.
        SystemExit: code 1, after a demo that found something broken.
    """
    from minitf.memory import ran_out

    option, demo = job.choices.get("data"), job.choices["demo"]
    if option is not None and demo != "data":
        raise ConfigError(f"demo={demo} looks at no data: leave data={option} out, or take demo=data data={option}")

    try:
        text = build(cfg.demo)(config=cfg)
    except (RuntimeError, OverflowError, ValueError) as error:
        if isinstance(error, ConfigError) or not (ran_out(error) or "overflow" in f"{type(error)}{error}".lower()):
            raise
        raise ConfigError("this demo does not fit into the memory here: choose smaller numbers") from error
    print(text)
    if code := getattr(text, "exit_code", 0):
        sys.exit(code)
