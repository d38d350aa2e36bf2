"""Data sets of the hub, read by other processes from a hub on this machine that speaks the real one's interface."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import time

import parts
import pyarrow
import pyarrow.parquet
import pytest
from hub_server import HubServer

from minitf.data.hub import Hub
from minitf.errors import ConfigError

READ = """
import json, sys, time
from minitf.data.hub import Hub
from minitf.errors import ConfigError, DataError
for asked in json.loads(sys.argv[1]):
    start = time.perf_counter()
    try:
        d = Hub(**asked).documents()
        said = {"train": d.train, "val": d.val, "record": d.record, "names": d.val_names}
    except (ConfigError, DataError) as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({**said, "seconds": time.perf_counter() - start}))
"""
FULL = """
import datasets, json, sys
for name, subset in json.loads(sys.argv[1]):
    datasets.load_dataset(name, subset)
"""


def parquet(**columns):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def card(**subsets):
    lines = ["---", "license: cc0-1.0", "configs:"]
    for subset, splits in subsets.items():
        lines += [f"- config_name: {subset}", "  data_files:"]
        lines += [line for s in splits for line in (f"  - split: {s}", f"    path: {subset}/{s}-*.parquet")]
    return "\n".join([*lines, "---", "# A card"]).encode()


ROWS = [f"row {i}" for i in range(100)]


def repos():
    return {
        "me/own-splits": {
            "README.md": card(one=["train", "validation"], two=["train"]),
            "one/train-0.parquet": parquet(text=["", *ROWS, None], n=list(range(102))),
            "one/validation-0.parquet": parquet(text=["val 0", "row 3"], n=[1, 2]),
            "two/train-0.parquet": parquet(text=["other"], n=[1]),
        },
        "me/plain": {"data.jsonl": b"".join(json.dumps({"body": row}).encode() + b"\n" for row in ROWS)},
        "me/tested": {"train.txt": b"line 0\nline 1\n", "test.txt": b"line 2\n"},
        "me/scripted": {"README.md": b"# card", "scripted.py": b"raise SystemExit(9)"},
        "me/pickled": {"train.pkl": b"no table"},
        "me/gated": {"README.md": b"# card", "train.jsonl": b'{"text": "x"}\n'},
    }


@pytest.fixture(scope="module")
def hub():
    with HubServer(repos()) as server:
        server.gated.add("me/gated")
        yield server


@pytest.fixture
def ask(tmp_path):
    """Read data sets in a new process: HF_ENDPOINT and HF_HOME are read when the libraries are imported."""

    def read(*asked, endpoint, code=READ, **env):
        own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "MINITF_CACHE": str(tmp_path / "cache")}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
        command = [sys.executable, "-c", code, json.dumps(asked)]
        done = subprocess.run(command, env=kept | own | env, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return read


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_splits_columns_and_what_is_recorded(hub, ask):
    own, few, plain, tested = ask(
        {"dataset": "me/own-splits", "subset": "one"},
        {"dataset": "me/own-splits", "subset": "one", "max_documents": 7},
        {"dataset": "me/plain", "column": "body", "val_fraction": 0.1},
        {"dataset": "me/tested"},
        endpoint=hub.url,
    )
    assert (own["train"], own["val"]) == (ROWS, ["val 0", "row 3"])
    record = own["record"]
    assert record["revision"] == hub.commit("me/own-splits")
    assert (record["licence"], record["documents"], record["empty_rows"]) == ("cc0-1.0", 102, 2)
    assert record["split"] == "the data set's own: train and validation"
    assert record["validation_documents_also_in_training"] == 1
    assert (few["train"], few["val"]) == (ROWS[:7], ["val 0"])
    assert sorted(plain["train"] + plain["val"]) == sorted(ROWS)
    assert 10 <= len(plain["val"]) <= 14
    assert plain["record"]["split"].startswith("by document: stable hash")
    assert (tested["train"], tested["val"]) == (["line 0", "line 1"], ["line 2"])
    assert len(own["names"]) == 2
    assert len(plain["names"]) == len(plain["val"])


def test_mistakes_are_named(hub, ask):
    asked = {
        r"has no column 'text', only 'body': .*data\.source\.column=NAME": {"dataset": "me/plain"},
        r"row 0 .*column 'n' holds 0, which is no text": {"dataset": "me/own-splits", "subset": "one", "column": "n"},
        r"has several subsets: .*data\.source\.subset=NAME, of \['one', 'two'\]": {"dataset": "me/own-splits"},
        r"no subset 'three', only \['one', 'two'\]": {"dataset": "me/own-splits", "subset": "three"},
        r"no data set 'me/nothing', or it is private.*token": {"dataset": "me/nothing"},
        r"me/gated is gated: accept its terms.*token": {"dataset": "me/gated"},
        r"no revision 'v9'": {"dataset": "me/plain", "revision": "v9"},
        r"script of its own, and minitf never executes code": {"dataset": "me/scripted"},
        r"DataError: me/pickled ": {"dataset": "me/pickled"},
    }
    for pattern, said in zip(asked, ask(*asked.values(), endpoint=hub.url), strict=True):
        assert re.search(pattern, said["error"]), said["error"]
        assert said["error"].startswith("DataError: ")


@pytest.mark.slow
def test_what_was_read_once_needs_no_network_and_a_new_commit_is_seen(ask, tmp_path):
    with HubServer(repos()) as hub:
        (first,) = ask({"dataset": "me/tested"}, endpoint=hub.url)
        (kept,) = (tmp_path / "cache" / "hub").iterdir()
        asked_before = len(hub.requests)
        (again,) = ask({"dataset": "me/tested"}, endpoint=hub.url)
        assert again["train"] == first["train"]
        assert not any("/resolve/" in request for request in hub.requests[asked_before:])
        hub.repos["me/tested"]["train.txt"] = b"newer\n"
        (newer,) = ask({"dataset": "me/tested"}, endpoint=hub.url)
        assert newer["train"] == ["newer"]
        assert newer["record"]["revision"] != first["record"]["revision"]
        kept.write_bytes(kept.read_bytes().replace(b"newer", b"wrong"))  # damaged: read again
        assert ask({"dataset": "me/tested"}, endpoint=hub.url)[0]["train"] == ["newer"]
    (offline,) = ask({"dataset": "me/tested"}, endpoint=closed_port())
    assert (offline["train"], offline["record"]) == (["newer"], newer["record"])
    kept.write_bytes(kept.read_bytes()[:-20])
    (refused,) = ask({"dataset": "me/tested"}, endpoint=closed_port())
    assert "cannot reach the hub" in refused["error"]


def test_what_datasets_has_prepared_works_offline(ask):
    with HubServer(repos()) as hub:
        ask(["me/own-splits", "one"], endpoint=hub.url, code=FULL)
        commit = hub.commit("me/own-splits")
    asked = {"dataset": "me/own-splits", "subset": "one"}
    whole, few, pinned, other = ask(
        asked,
        asked | {"max_documents": 3},
        asked | {"revision": commit},
        asked | {"revision": "0" * 40},
        endpoint=closed_port(),
    )
    assert (whole["train"], whole["val"]) == (ROWS, ["val 0", "row 3"])
    assert few["train"] == ROWS[:3]
    assert pinned["record"]["revision"] == commit
    assert "cannot reach the hub" in other["error"]  # another commit than the one asked for is not taken


@pytest.mark.parametrize(
    "way", parts.some_by_default(["no answer", "closed port", "no such host", "offline mode", "proxy"], 3)
)
def test_a_hub_that_cannot_be_reached_is_refused_within_seconds(ask, way):
    env = {}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never says a word
        mute = f"http://127.0.0.1:{silent.getsockname()[1]}"
        endpoint = {"no answer": mute, "no such host": "https://hub.invalid"}.get(way, closed_port())
        if way == "offline mode":
            env = {"HF_DATASETS_OFFLINE": "1"}
        if way == "proxy":
            endpoint, env = "https://hub.invalid", {"HTTPS_PROXY": closed_port()}
        (said,) = ask({"dataset": "me/tested"}, endpoint=endpoint, **env)
    assert re.search(r"DataError: data=hub cannot reach the hub .*data=python_stdlib", said["error"])
    assert said["seconds"] < 8  # 4 at most, and the imports; the libraries alone take 24 to 31


@pytest.mark.slow
def test_processes_that_read_the_same_do_not_hurt_each_other(hub, tmp_path):
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "MINITF_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", READ, json.dumps([{"dataset": "me/own-splits", "subset": "one"}])]
    running = [subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    assert [x["train"] for x in said] == [ROWS] * 3
    assert len(list((tmp_path / "cache" / "hub").iterdir())) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dataset": "/home/me/texts"}, "no name on the hub.*data=text_files"),
        ({"dataset": "../up"}, "no name on the hub"),
        ({"dataset": "a/b/c"}, "no name on the hub"),
        ({"dataset": "a/b", "revision": 7}, "quote it"),
        ({"dataset": "a/b", "max_documents": 0}, "max_documents"),
        ({"dataset": "a/b", "val_fraction": 1.0}, "val_fraction"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(asked, message):
    start = time.perf_counter()
    with pytest.raises(ConfigError, match=message):
        Hub(**asked)
    assert time.perf_counter() - start < 1
