"""Every demo prints at once, reads well, and writes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from demos import text_of

from minitf.config import group_options
from minitf.demo.text import WIDTH, matrix, width
from minitf.errors import ConfigError

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.mark.parametrize("name", group_options("demo"))
def test_every_demo_is_listed_and_fits_a_page(name):
    assert f"  demo={name} " in text_of()
    lines = text_of(f"demo={name}").splitlines()
    assert len(lines) > 2
    too_long = [line for line in lines if width(line) > WIDTH]
    assert not too_long
    assert not [line for line in lines if line != line.rstrip()]


def test_the_command_prints_and_writes_no_file(tmp_path):
    call = [sys.executable, str(SCRIPT), "demo=pronoun"]
    env = {"PYTHONPATH": str(SCRIPT.parents[1]), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(call, cwd=tmp_path, env=os.environ | env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "猫追球" in done.stdout.decode("utf-8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["demo=blocks", "demo.group=masks"], "none of the groups; nearest: mask"),
        (["demo=shapes", "demo.batch=0"], "demo.batch must be a whole number of at least 1, got 0"),
        (["demo=shapes", "demo.length=80"], "80 tokens do not fit the learned position table of 32 places"),
        (["demo=memory", "demo.long_heads=0"], "demo.long_heads must be"),
        (["demo=toy3", "demo.random=x"], "demo.random must be a whole number"),
        (["demo=two_tokens", "demo.other_value=[1]"], r"two numbers, such as \[10,10\], got \[1\]"),
        (["demo=variance", "demo.widths=[]"], "demo.widths is empty"),
        (["demo=diagonal", "demo.widths=[0]"], r"demo.widths\[0\] must be"),
        (["demo=masks", "demo.n_layers=0"], "demo.n_layers must be"),
    ],
)
def test_mistakes_are_told(overrides, message):
    with pytest.raises(ConfigError, match=message):
        text_of(*overrides)


def test_wide_characters_take_two_columns():
    import torch

    lines = matrix("m", torch.eye(2), ["猫", "ab"], ["球", "c"]).splitlines()
    assert lines == ["m", "      球  c", "  猫   1  0", "  ab   0  1"]
    assert len({width(line) for line in lines[1:]}) == 1
