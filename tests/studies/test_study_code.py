"""A result is done again when code behind it has changed, and only then."""

import subprocess
import sys

import pytest

from minitf.studies import code
from minitf.studies.code import ROOT, code_hash, targets

LOADED = """
import sys
from minitf.studies.cell import run_cell
from minitf.studies.study import load
study = load(sys.argv[1])
run_cell(study, study.reference, 0, smoke=True)
print(*(name for name in sys.modules if name.split(".")[0] == "minitf"))
"""


@pytest.fixture
def fresh():
    """Files are read once per process: a test that changes them must not leave that behind."""
    yield
    for cached in (code._behind, code._imported, code._instructions, code._files):
        cached.cache_clear()


def names_behind(named):
    files = code._behind(frozenset({*named, *code.RUNS}))
    return {file.relative_to(ROOT).as_posix() for file in files}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["head_collapse", "bottleneck"])
def test_all_that_a_cell_loads_is_behind_it(name):
    from minitf.config import compose
    from minitf.studies.store import key_of
    from minitf.studies.study import load

    study = load(name)
    key = key_of(study, study.reference, 0, compose("train", study.overrides(study.reference)), None)
    behind = names_behind(targets([study.measures, key["config"]]))
    done = subprocess.run([sys.executable, "-c", LOADED, name], capture_output=True, text=True, check=True, timeout=300)
    loaded = {name for name in done.stdout.split() if name != "minitf"}
    files = {file.relative_to(ROOT).as_posix() for name in loaded for file in code._files(name)[-1:]}
    assert len(files) > 40
    assert files <= behind


def test_a_measure_counts_where_it_is_named_only():
    named = names_behind({"minitf.studies.measures.sinks.sink"})
    others = names_behind({"minitf.studies.measures.heads.diversity"})
    assert "studies/measures/sinks.py" in named - others
    assert "analysis/heads/sink.py" in named
    assert "studies/verdict.py" not in named | others


def test_a_change_changes_the_hash(fresh, monkeypatch):
    before, other = code_hash({"minitf.studies.measures.sinks.sink"}), code_hash({"minitf.tap.Tap"})
    instructions = code._instructions
    sink = ROOT / "studies" / "measures" / "sinks.py"
    monkeypatch.setattr(code, "_instructions", lambda file: instructions(file) + (b"\n" if file == sink else b""))
    assert code_hash({"minitf.studies.measures.sinks.sink"}) != before
    assert code_hash({"minitf.tap.Tap"}) == other
    assert code_hash({"minitf.tap.Tap"}, builds=True) != other


def test_comments_and_docstrings_do_not_count(tmp_path):
    def read(text):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        file.write_text(text, encoding="utf-8")
        return code._instructions(file)

    plain = read("def f():\n    return 1\n")
    assert read('"""Module."""\n\n# why\ndef f():\n    """What."""\n    return 1  # why\n') == plain
    assert read("def f():\n    return 2\n") != plain


def test_code_elsewhere_counts(tmp_path, monkeypatch):
    module = tmp_path / "own_measure.py"
    module.write_text("def f(subject):\n    return {'one': 1.0}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    before = code_hash({"own_measure.f"})
    module.write_text("def f(subject):\n    return {'one': 2.0}\n", encoding="utf-8")
    assert code_hash({"own_measure.f"}) != before
