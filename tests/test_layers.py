"""Imports run one way, and what must answer at once imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import minitf

ROOT = Path(minitf.__file__).parent
BASE = {"errors", "files", "hints", "memory"}
CORE = BASE | {"positions", "tap", "cache"}
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "hints": set(),
    "memory": set(),
    "positions": BASE,
    "tap": BASE,
    "cache": BASE | {"positions", "cache"},
    "blocks": CORE | {"blocks"},
    "models": CORE | {"blocks", "models"},
    "generation": CORE | {"blocks", "models", "generation"},
    "data": BASE | {"positions", "data"},
    "analysis": CORE | {"analysis"},
    "training": CORE | {"blocks", "models", "training", "analysis"},
    "scoring": BASE | {"scoring"},
    "kinds": BASE,
    "config": BASE | {"kinds"},
    "typed": BASE | {"config", "kinds"},
    "explain": BASE | {"config", "kinds", "typed"},
    "help": BASE | {"config", "typed"},
    "command_line": BASE | {"config", "explain", "help", "training", "typed"},
    "runs": BASE | {"config", "data", "training"},
    "suited": BASE | {"config"},
    "bench": CORE | {"blocks", "models", "generation", "data", "training", "config", "bench"},
    "lab": CORE | {"blocks", "lab"},
    "demo": CORE | {"blocks", "models", "data", "config", "analysis", "runs", "demo"},
    "report": BASE | {"report", "analysis"},
    "studies": CORE | {"blocks", "models", "generation", "data", "analysis", "training", "bench", "config", "studies"},
    "commands": CORE
    | {
        "bench",
        "demo",
        "blocks",
        "models",
        "generation",
        "data",
        "analysis",
        "report",
        "training",
        "scoring",
        "studies",
    }
    | {"config", "suited", "typed", "explain", "command_line", "runs", "commands", "__init__"},
    "__init__": set(),
}
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [alias.name for alias in node.names]
            found |= {f"{node.module}.{name}" for name in names} if node.module == "minitf" else {node.module}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    own = part_of(path)
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("minitf.")}
    parts = {"__init__" if part == "__version__" else part for part in parts}
    assert parts <= MAY_IMPORT[own], f"{path.relative_to(ROOT)} imports {sorted(parts - MAY_IMPORT[own])}"


def test_the_checker_sees_every_part():
    assert {part_of(p) for p in FILES} == set(MAY_IMPORT)


def test_only_three_files_import_hydra():
    users = {p.name for p in FILES if any(name.split(".")[0] == "hydra" for name in imports(p))}
    assert users == {"config.py", "command_line.py", "explain.py"}


LIGHT = {
    "__init__",
    "command_line",
    "commands",
    "config",
    "errors",
    "explain",
    "help",
    "hints",
    "kinds",
    "memory",
    "suited",
    "typed",
}


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) in LIGHT])
def test_commands_import_nothing_heavy_at_module_level(path):
    heavy = {"torch", "lightning", "datasets", "tokenizers", "wandb", "numpy", "transformers"}
    light_parts = {
        "errors",
        "config",
        "explain",
        "help",
        "hints",
        "kinds",
        "suited",
        "typed",
        "command_line",
        "commands",
    }
    light_parts |= {"__version__"}
    light_files = {"minitf.training.launched", "minitf.training.stop", "minitf.memory", "minitf.files"}
    for name in imports(path, top_level_only=True):
        assert name.split(".")[0] not in heavy
        if name.startswith("minitf.") and name not in light_files:
            assert name.split(".")[1] in light_parts, f"{path.name} imports {name} at module level"


@pytest.mark.parametrize("command", ["train", "generate", "evaluate", "analyze", "ablate", "benchmark", "demo"])
@pytest.mark.parametrize("flag", [["--help"], pytest.param(["--cfg", "job"], marks=pytest.mark.slow)])
def test_help_and_config_answer_without_torch_within_a_second_of_cpu(command, flag, tmp_path):
    code = (
        f"import sys, resource; sys.argv = ['{command}', *{flag}]\n"
        f"from minitf.commands.{command} import main\n"
        "try: main()\n"
        "finally:\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print('CPU', used.ru_utime + used.ru_stime, 'TORCH', 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1].split()
    assert last[2:] == ["TORCH", "False"]
    assert float(last[1]) <= 1.0
    assert not list(tmp_path.iterdir()), "asking for help must write nothing"
