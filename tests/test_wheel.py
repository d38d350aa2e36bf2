"""A plain, non-editable install has the configs too, and its command works from an empty folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_wheel_holds_configs_and_its_command_runs_anywhere(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("minitf-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(tmp_path / "site")
    shipped = {n for n in names if n.startswith("minitf/configs/")}
    assert shipped == {f"minitf/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "configs").rglob("*.yaml")}
    assert {"minitf/demo/claims.yaml", "minitf/demo/verdicts.json", "minitf/studies/metrics.yaml"} <= set(names)
    assert not [n for n in names if n.startswith(("tests/", "scripts/"))]
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import minitf, sys; print(minitf.__file__); from minitf.commands.train import main; main()"
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    call = [sys.executable, "-c", code, "--cfg", "job"]
    done = subprocess.run(call, cwd=empty, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "site") in done.stdout.splitlines()[0]
    assert "minitf.models.decoder.Decoder" in done.stdout
