import copy
import hashlib
import io
import pickle

import parts
import pytest
import torch

from minitf.cache import KVCache
from minitf.cache.dynamic import Dynamic
from minitf.cache.static import Static
from minitf.errors import ConfigError, DataError
from minitf.generation.prefix import common, fingerprint, load_prefix, save_prefix
from minitf.positions import from_real


def gpt(*overrides):
    return parts.model("gpt_tiny", "model/position=rope", *overrides, scale=4)


@torch.no_grad()
def read(model, ids, make=Dynamic):
    caches = model.new_caches(make)
    model.step(ids, None, caches)
    return caches


def saved(path, model, ids, make=Dynamic):
    save_prefix(path, model, ids, read(model, ids, make))
    return path


@torch.no_grad()
@pytest.mark.parametrize("make", [Dynamic, lambda: Static(40), Static])
def test_going_on_from_a_file_is_going_on_from_the_reading(tmp_path, make):
    model, ids, more = gpt("model/attention=gqa"), torch.randint(65, (1, 9)), torch.randint(65, (1, 6))

    def new():
        caches = model.new_caches(make)
        for cache in caches:
            cache.reserve(30)
        return caches

    caches = new()
    model.step(ids, None, caches)
    save_prefix(tmp_path / "a.prefix", model, ids, caches)
    loaded = new()
    model.step(torch.randint(65, (1, 4)), None, loaded)  # what a cache holds before is forgotten
    found = load_prefix(tmp_path / "a.prefix", model, loaded)
    assert found.dtype == torch.int64
    assert torch.equal(found, ids)
    for cut in (9, 5):  # all of it, and what another prompt shares
        for cache in (*caches, *loaded):
            cache.crop(cut)
        for piece in (more[:, :4], more[:, 4:5], more[:, 5:]):
            last = model.step(piece, None, loaded)
            assert torch.equal(model.step(piece, None, caches), last)
        whole = model.step(torch.cat([ids[:, :cut], more], 1))
        torch.testing.assert_close(last, whole, atol=1e-5, rtol=0)


class Odd(KVCache):
    """Keeps what no cache of today does: codes, numbers, nothing, containers in containers."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.plain, self.state = True, {"n": 0}

    @property
    def n_seen(self):
        return self.state["n"]

    def reserve(self, n):
        pass

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_whatever_a_state_holds_comes_back(tmp_path):
    whole = torch.arange(1000.0).reshape(10, 100)
    state = {
        "n": 3,
        "codes": torch.tensor([[-128, 127]], dtype=torch.int8),
        "scales": [torch.rand(2, 3).bfloat16(), torch.rand(2, 3).half()],
        "pos": torch.tensor([[0, 2**33, -1]]),
        "view": whole[:, 3:5],
        "one_row": torch.arange(3)[None].expand(4, 3),
        "inner": {"a": None, "b": (True, 0.25, "text"), "c": {"d": []}},
        "empty": torch.zeros(1, 0, 4),
        "scalar": torch.tensor(7),
    }
    model, cache, loaded = gpt("model.n_layers=1"), Odd(), Odd()
    cache.state = state
    save_prefix(tmp_path / "p", model, torch.tensor([[1, 2, 3]]), [cache])
    load_prefix(tmp_path / "p", model, [loaded])
    assert loaded.state.keys() == state.keys()
    assert loaded.state["inner"] == state["inner"]
    for key in ("codes", "pos", "view", "one_row", "empty", "scalar"):
        assert loaded.state[key].dtype == state[key].dtype
        assert torch.equal(loaded.state[key], state[key])
    for a, b in zip(loaded.state["scales"], state["scales"], strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert loaded.state["view"].untyped_storage().nbytes() == 80  # not the 4000 bytes of what it is a part of


def test_the_file_of_another_model_is_refused(tmp_path):
    model, ids = gpt(), torch.randint(65, (1, 5))
    path = saved(tmp_path / "p", model, ids)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        next(moved.layers[1].parameters())[0] += 1e-3
    # the same weights, but another computation
    others = [moved, gpt("model.position.base=5000"), gpt("model.attention.n_heads=2"), gpt("model/mask=strided")]
    others += [gpt("model/mask=sliding_window"), gpt("model.layer.attention_residual=0.5"), gpt().double()]
    for other in others:
        caches = read(other, ids[:, :2])
        with pytest.raises(ConfigError, match="read by another model, or by this one with other weights or settings"):
            load_prefix(path, other, caches)
        assert caches[0].n_seen == 2  # what they held is still there
    load_prefix(path, copy.deepcopy(model).train(), model.new_caches(Dynamic))
    assert len({fingerprint(m) for m in (model, *others)}) == 8


@pytest.mark.parametrize("preset", ["gpt_tiny", "mixed_tiny", "llama_tiny"])
def test_a_fingerprint_outlives_use(preset):
    model = parts.model(preset, "model/ffn=moe") if preset == "gpt_tiny" else parts.model(preset)
    before = fingerprint(model)
    model.train()(torch.randint(65, (2, 7))).sum().backward()
    read(model, torch.randint(65, (1, 5)))
    assert fingerprint(model) == fingerprint(copy.deepcopy(model)) == before


def test_other_caches_are_refused(tmp_path):
    model, ids = gpt(), torch.randint(65, (1, 5))
    path = saved(tmp_path / "p", model, ids)
    with pytest.raises(ConfigError, match=r"of the caches 2 x Dynamic, these are 2 x Static"):
        load_prefix(path, model, model.new_caches(Static))
    with pytest.raises(ConfigError, match=r"2 x Dynamic, these are 1 x Dynamic"):
        load_prefix(path, model, [Dynamic()])
    with pytest.raises(ConfigError, match="there are none"):
        load_prefix(path, model, [])

    class Forgets(Dynamic):
        keeps = (8, 2)

    class Around(Dynamic):
        raw_keys = True

        def __init__(self):
            super().__init__()
            self.inner = Forgets()

    with pytest.raises(ConfigError, match=r"these are 2 x Around\(Forgets\(window=8, n_sink=2\), renumber\)"):
        load_prefix(path, model, [Around(), Around()])
    too_small = model.new_caches(lambda: Static(4))
    with pytest.raises(ConfigError, match="5 tokens do not fit a static cache of 4 places"):
        load_prefix(saved(tmp_path / "s", model, ids, lambda: Static(9)), model, too_small)


def test_only_what_the_caches_have_read_can_be_saved(tmp_path):
    model, ids = gpt(), torch.randint(65, (1, 5))
    caches = read(model, ids)
    for wrong, message in (
        (ids[:, :4], r"have read \[5\] tokens, the prefix has 4"),
        (ids.expand(2, 5), "a prefix is one row"),
        (ids[0], "a prefix is one row"),
        (ids[:, :0], "a prefix is one row"),
    ):
        with pytest.raises(ConfigError, match=message):
            save_prefix(tmp_path / "p", model, wrong, caches)
    padded = model.new_caches(Dynamic)
    model.step(ids, from_real(torch.tensor([[False, True, True, True, True]])), padded)
    with pytest.raises(ConfigError, match="padded or packed"):
        save_prefix(tmp_path / "p", model, ids, padded)
    with pytest.raises(ConfigError, match="reads a source"):
        save_prefix(tmp_path / "p", parts.model("vaswani_tiny"), ids, caches)
    assert not list(tmp_path.iterdir())


RAN = []


def _ran(*args):
    RAN.append(args)


class Payload:
    """Pickled, it is a call of `_ran` when it is loaded."""

    def __reduce__(self):
        return _ran, ("loaded",)


def whole(archive):
    """With the checksum that tells a whole file."""
    return archive + hashlib.sha256(archive).digest()


def test_a_broken_file_is_refused_and_nothing_in_it_is_run(tmp_path):
    model, ids = gpt(), torch.randint(65, (1, 5))
    good = saved(tmp_path / "good", model, ids).read_bytes()
    content = torch.load(tmp_path / "good", weights_only=True)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0x40  # torch reads changed numbers as they are
    files = {
        "cut": good[: len(good) // 2],
        "flipped": bytes(flipped),
        "empty": b"",
        "text": b"A prompt, not a prefix.",
        "pickle": whole(pickle.dumps(Payload(), protocol=2)),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    pickle.loads(files["pickle"])
    assert RAN.pop() == ("loaded",)  # the way is open without the check
    stored = {
        "list": [1, 2],
        "other": {"format": "else"},
        "payload": {**content, "more": Payload()},
        "ids": {**content, "ids": "abc"},
        "rows": {**content, "ids": content["ids"].expand(2, 5)},
        "kinds": {**content, "kinds": 3},
        "fewer": {**content, "ids": content["ids"][:, :3]},
        "state": {**content, "caches": [content["caches"][0], {}]},
        "layers": {**content, "caches": content["caches"][:1]},
    }
    for name, value in stored.items():
        archive = io.BytesIO()
        torch.save(value, archive)
        (tmp_path / name).write_bytes(whole(archive.getvalue()))
    (tmp_path / "folder").mkdir()
    for name in (*files, *stored, "folder"):
        caches = model.new_caches(Dynamic)
        with pytest.raises(DataError, match=f"{name}.* cannot be read as a prefix .*save it again"):
            load_prefix(tmp_path / name, model, caches)
        assert {c.n_seen for c in caches} == {0}
    assert not RAN
    with pytest.raises(DataError, match=r"there is no prefix file .*nowhere"):
        load_prefix(tmp_path / "nowhere", model, model.new_caches(Dynamic))


def test_a_failed_save_leaves_the_older_file(tmp_path, monkeypatch):
    model, ids = gpt(), torch.randint(65, (1, 5))
    path = saved(tmp_path / "p", model, ids)

    def fails(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("minitf.files.os.fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        saved(path, model, ids[:, :2])
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    assert torch.equal(load_prefix(path, model, model.new_caches(Dynamic)), ids)


def test_how_much_of_a_prompt_is_in_the_prefix():
    prefix = torch.tensor([[5, 3, 8, 8]])
    for ids, n in (([5, 3, 8, 8, 1], 4), ([5, 3, 8, 8], 4), ([5, 3], 2), ([5, 4, 8, 8], 1), ([1, 3, 8], 0), ([], 0)):
        assert common(torch.tensor([ids]).long(), prefix) == n
        assert common(torch.tensor(ids).long(), prefix[0]) == n
