"""A trained toy run for the tests of the commands: real files, real training, a few seconds."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from minitf.command_line import Job
from minitf.commands.train import train
from minitf.config import check, compose

TOY = [
    "data=text_files",
    "data.seq_len=32",
    "data.batch_size=4",
    "data.tokenizer.vocab_size=300",
    "model.d_model=32",
    "model.n_layers=2",
    "schedule.warmup_steps=5",
    "trainer.max_steps=30",
    "trainer.val_every=10",
    "trainer.log_every=5",
]
WORDS = "the cat sat on a mat and it was tired so then 猫 追 球 é 🙂 def return ( ) [ ] = , .".split()


def write_corpus(folder: Path, n_files: int = 60) -> Path:
    """Random sentences with several scripts, the same every time."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n_files):
        text = "\n".join(" ".join(draw.choices(WORDS, k=12)) for _ in range(20))
        (folder / f"{i:03}.txt").write_text(text, encoding="utf-8")
    return folder


def train_here(folder: Path, overrides: list[str], resume: bool = False, logger: str = "csv") -> Path:
    """Run the train command's own code in this process; returns the run folder."""
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    folder.mkdir(parents=True, exist_ok=True)
    train(cfg, Job(folder=folder, choices={"logger": logger}, overrides=overrides, sweep=None), resume)
    return folder


def command(name: str, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    """The command as a user starts it, in a process of its own."""
    import os

    code = f"import sys; sys.argv[0] = 'minitf-{name}'; from minitf.commands.{name} import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run; its corpus lies beside it."""
    base = tmp_path_factory.mktemp("toy")
    corpus = write_corpus(base / "corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(base / "cache"))
        return train_here(base / "run", [*TOY, f"data.source.path={corpus}"])
