"""Files of results: what is read is what was written, and what could not have been written is not there."""

import errno
import json
import math
import os
from pathlib import Path

import pytest

from minitf.errors import DataError
from minitf.studies.result import Result
from minitf.studies.store import Store

DAMAGED = {
    "cut short": '{"result": {"cell": ',
    "a list": "[1]",
    "another study": {"study": "b"},
    "another cell": {"cell": "two"},
    "another seed": {"seed": 2},
    "a seed that is no number": {"seed": True},
    "no scores": {"scores": {}},
    "scores as texts": {"scores": {"loss": "2"}},
    "scores as a list": {"scores": [2]},
    "scores that are too large": {"scores": {"loss": 10**400}},
    "no seconds": {"seconds": None},
    "seconds that are not finite": {"seconds": math.nan},
    "seconds below zero": {"trained": -1.0},
    "parameters as a text": {"n_params": "3"},
    "half a step": {"n_steps": 1.5},
    "an error that is a number": {"error": 5},
    "courses without steps": {"courses": {"loss": [1.0]}},
    "courses with texts": {"courses": {"loss": [["a", 1.0]]}},
    "courses as a list": {"courses": [1]},
    "a field that is not known": {"score": {}},
    "a key that is no mapping": {"key": [1]},
    "neither final nor not": {"final": "no"},
}


@pytest.mark.parametrize("wrong", DAMAGED.values(), ids=DAMAGED)
def test_what_is_damaged_is_not_there(tmp_path, wrong):
    store = Store(tmp_path)
    store.write(Result("a", "one", 1, {"loss": 2}, {"loss": [(1, 3.0)]}, 3, 4, 5.0), {"torch": "2"})
    path = store.path("a", "one", 1)
    assert store.read("a", "one", 1).result.scores == {"loss": 2}
    if isinstance(wrong, dict):
        content = json.loads(path.read_text())
        content |= wrong if wrong.keys() & {"key", "final"} else {"result": content["result"] | wrong}
        wrong = json.dumps(content)
    path.write_text(wrong)
    assert store.read("a", "one", 1) is None


def test_what_is_not_finite_is_a_result_and_so_is_an_error_without_scores(tmp_path):
    store = Store(tmp_path)
    for of in (Result("s", "c", 0, {"loss": math.inf}, {"x": [(1, math.nan)]}), Result("s", "c", 0, error="no luck")):
        store.write(of, {"a": 1}, final=not of.error)
        result, key, final = store.read("s", "c", 0)
        assert (repr(result), key, final) == (repr(of), {"a": 1}, not of.error)


@pytest.mark.parametrize(
    ("code", "way"),
    [(errno.ENOSPC, "free some space, or give another folder=..."), (errno.EROFS, "give another folder=...")],
)
def test_what_cannot_be_written_is_told_with_its_file_the_reason_and_a_way_out(tmp_path, monkeypatch, code, way):
    def refuse(path, *rest, **more):
        raise OSError(code, os.strerror(code), str(path))

    store = Store(tmp_path / "kept")
    store.write(Result("s", "c", 0, error="no luck"), {"a": 1})
    for owner, name in ((os, "fsync"), (Path, "unlink")):  # a disk that is read-only keeps the part of the file, too
        monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(DataError) as caught:
        store.write(Result("s", "c", 1, error="no luck"), {"a": 1})
    told = str(caught.value)
    assert all(part in told for part in (str(store.path("s", "c", 1)), os.strerror(code), way))
    assert ".tmp" not in told
    assert store.read("s", "c", 0).key == {"a": 1}
