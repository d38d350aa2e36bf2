"""Ways in: what a stranger could write into a run folder or a cache, that loading it would run.

Where it is cheap, a test shows first that the way is open without the check.
"""

import functools
import json
import pickle
import shutil
import sys

import hydra
import numpy as np
import pytest
import torch
import yaml
from omegaconf import OmegaConf

from minitf.config import compose
from minitf.data import store
from minitf.data.tokenizer import CharTokenizer, load_tokenizer
from minitf.errors import ConfigError, DataError
from minitf.runs import check_config, check_targets, load_run
from minitf.training.checkpoint import read_checkpoint

RAN = []


class Payload:
    """Pickled, it runs `RAN.append` when it is loaded."""

    def __reduce__(self):
        return _ran, ("pickle",)


def _ran(*args, **kwargs):
    RAN.append((args, kwargs))


@pytest.fixture(autouse=True)
def nothing_ran():
    RAN.clear()
    yield
    assert RAN == [], "a stranger's code ran"


def opened():
    """The way was shown to be open; from here on nothing may run."""
    assert RAN, "this attack does not work even without the check"
    RAN.clear()


def config(*overrides):
    cfg = compose("train", list(overrides))
    cfg.data.vocab_size = 31
    return OmegaConf.to_container(cfg, resolve=True)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module of a stranger that can be imported: doing so runs it."""
    (tmp_path / "stranger.py").write_text(
        "import tests_trust_ran\ntests_trust_ran.append('import')\ndef part(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "tests_trust_ran", RAN)
    yield "stranger"
    sys.modules.pop("stranger", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder as training leaves it, without training."""
    from minitf.config import build

    folder = tmp_path_factory.mktemp("run")
    (folder / "checkpoints").mkdir()
    cfg = config("model.d_model=16", "model.n_layers=1", "data.seq_len=8")
    tokenizer = CharTokenizer().train("".join(map(chr, range(97, 127))))
    tokenizer.save(folder)
    cfg["data"]["vocab_size"] = tokenizer.vocab_size
    model = build(OmegaConf.create(cfg).model)
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "config": cfg}, folder / "checkpoints" / "best-step=1.ckpt")
    OmegaConf.save(OmegaConf.create(cfg), folder / "config.yaml")
    load_run(folder)
    return folder


def tampered(run, tmp_path, change):
    """A copy of the run whose checkpoint went through `change`."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    path = copy / "checkpoints" / "best-step=1.ckpt"
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, path)
    return copy


# --- what lies in the files


def test_a_pickle_in_a_checkpoint(run, tmp_path):
    copy = tampered(run, tmp_path, lambda state: state.update(callbacks=Payload()))
    torch.load(copy / "checkpoints" / "best-step=1.ckpt", weights_only=False)
    opened()
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint"):
        load_run(copy)
    (tmp_path / "bare.ckpt").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint"):
        read_checkpoint(tmp_path / "bare.ckpt")


def test_a_pickle_in_the_cache_with_its_right_sha256(tmp_path):
    prepared = store.Prepared(CharTokenizer().train("abc"), np.arange(9), np.arange(9))
    store.save(tmp_path / "entry", prepared)
    np.save(tmp_path / "entry" / "train.npy", np.array([Payload()], dtype=object), allow_pickle=True)
    np.load(tmp_path / "entry" / "train.npy", allow_pickle=True)
    opened()
    meta = json.loads((tmp_path / "entry" / "meta.json").read_text())
    meta["sha256"]["train.npy"] = store._file_hash(tmp_path / "entry" / "train.npy")
    (tmp_path / "entry" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="pickle"):
        store.load(tmp_path / "entry")


def test_yaml_tags_in_config_yaml(run, tmp_path):
    copy = tampered(run, tmp_path, lambda state: None)
    text = f"model: !!python/object/apply:{__name__}._ran [yaml]\n"
    yaml.unsafe_load(text)
    opened()
    (copy / "config.yaml").write_text(text)
    load_run(copy)  # the config that counts is in the checkpoint
    with pytest.raises(yaml.YAMLError):
        OmegaConf.load(copy / "config.yaml")


@pytest.mark.parametrize("name", ["status.json", "metrics.json", "record.json"])
def test_code_in_the_json_files_of_a_run_is_text(run, tmp_path, name):
    copy = tampered(run, tmp_path, lambda state: None)
    (copy / name).write_text(json.dumps({"_target_": f"{__name__}._ran", "overrides": ["+x=${oc.env:HOME}"]}))
    hydra.utils.instantiate(json.loads((copy / name).read_text()))
    opened()
    load_run(copy)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Payload()),
        b'{"settings": {"type": "__import__(\'os\').system"}}',
        b'{"settings": {"type": "bpe", "vocab_size": 300}, "tokenizers": {"model": {"type": "Python"}}}',
        b'{"settings": {"type": "char"}, "characters": {"_target_": "os.system"}}',
        b"[" * 100_000,
    ],
)
def test_tricks_in_tokenizer_json(run, tmp_path, content):
    copy = tampered(run, tmp_path, lambda state: None)
    (copy / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=r"no tokenizer can be read from .*tokenizer\.json"):
        load_tokenizer(copy)
    with pytest.raises(DataError, match="no tokenizer can be read"):
        load_run(copy)


def test_a_link_to_a_file_that_is_no_checkpoint_shows_nothing_of_it(run, tmp_path):
    copy = tampered(run, tmp_path, lambda state: None)
    (tmp_path / "secret").write_text("my password")
    path = copy / "checkpoints" / "best-step=1.ckpt"
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint") as error:
        load_run(copy)
    assert "password" not in str(error.value)


# --- what the config names

HERE = __name__
WAYS_IN = {
    "a function of a stranger": lambda: {"_target_": f"{HERE}._ran"},
    "in a list": lambda: {"_target_": "torch.nn.Identity", "x": [[{"_target_": f"{HERE}._ran"}]]},
    "in positional arguments": lambda: {"_target_": "torch.nn.Identity", "_args_": [{"_target_": f"{HERE}._ran"}]},
    "with _convert_": lambda: {"_target_": "torch.nn.Identity", "x": {"_target_": f"{HERE}._ran", "_convert_": "all"}},
    "an object, not a name": lambda: {"_target_": _ran},
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_a_target_in_any_place(way):
    hydra.utils.instantiate(WAYS_IN[way]())
    opened()
    with pytest.raises(ConfigError, match="not loaded"):
        check_targets({"part": WAYS_IN[way]()})
    whole = config()
    whole["model"]["ffn"] = WAYS_IN[way]()
    with pytest.raises(ConfigError, match="not loaded"):
        check_config(whole)


def test_a_target_in_the_run_is_refused_before_it_is_imported(run, tmp_path, trap):
    hydra.utils.instantiate({"_target_": f"{trap}.part"})
    opened()
    sys.modules.pop(trap)
    copy = tampered(run, tmp_path, lambda state: state["config"]["model"].update(ffn={"_target_": f"{trap}.part"}))
    with pytest.raises(ConfigError, match=r"stranger\.part.*not loaded"):
        load_run(copy)


@pytest.mark.parametrize(
    "target",
    [
        "torch.nn.Module.load_state_dict",
        "torch.nn.Module.register_module",
        "torch.nn.modules.module.torch.load",
        "torch.nn.functional.importlib.import_module",
        "torch.nn.attention._fa4.register_flash_attention_fa4",
        "torch.nn.attention.activate_flash_attention_impl",
        "torch.nn.modules.module.register_module_forward_hook",
        "torch.nn.Linear.__init__",
        "torch.nn.Linear.__class__",
        "torch.nn.Linear.__subclasses__",
        "torch.nn",
        "torch.nn.Linear ",
        " torch.nn.Linear",
        "torch.nn.Linear\n",
        "torch.nn．Linear",
        "torch.nn.Ｌinear",
        "torch..nn.Linear",
        ".torch.nn.Linear",
        "torch.nn.",
        "torch.nnx.Linear",
        "minitf.blocks.attention.hydra.utils.get_method",
        "hydra.utils.get_method",
        "hydra.utils.instantiate",
        "functools.partial",
        "",
        "???",
        3,
        None,
        True,
        ["torch.nn.Linear"],
        {"_target_": "torch.nn.Linear"},
        b"torch.nn.Linear",
    ],
)
def test_a_name_that_only_looks_trusted(target):
    with pytest.raises(ConfigError):
        check_targets({"_target_": target})


class Part(torch.nn.Module):
    class Inner(torch.nn.Module):
        def method(self):
            return None

    @classmethod
    def made(cls):
        return cls()


def test_what_a_trusted_module_holds_is_judged_by_what_it_is(monkeypatch):
    import minitf.blocks.ffn as trusted

    for kind in (Part, Part.Inner):
        monkeypatch.setattr(kind, "__module__", trusted.__name__)
    planted = {
        "planted_partial": functools.partial(_ran, "partial"),
        "planted_lambda": lambda: _ran("lambda"),
        "planted_builtin": eval,
        "planted_instance": Part(),
        "planted_module": sys,
        "Planted": Part,
    }
    planted["planted_lambda"].__module__ = trusted.__name__
    for name, value in planted.items():
        monkeypatch.setattr(trusted, name, value, raising=False)
    for name in [name for name in planted if name != "Planted"] + ["Planted.made", "Planted.Inner.method"]:
        with pytest.raises(ConfigError, match="not loaded"):
            check_targets({"_target_": f"{trusted.__name__}.{name}"})
    hydra.utils.instantiate({"_target_": f"{trusted.__name__}.planted_partial"})
    opened()
    # a class inside a class is a class, and found as Hydra finds it
    check_targets({"_target_": f"{trusted.__name__}.Planted.Inner"})
    with pytest.raises(ConfigError, match="does not exist"):
        check_targets({"_target_": f"{trusted.__name__}.Planted.Other"})


def test_an_interpolation_reads_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "my password")
    assert OmegaConf.create({"x": "${oc.env:SECRET}"}).x == "my password"
    for place in ("model", "data"):
        whole = config()
        whole[place]["dropout"] = "${oc.env:SECRET}"
        with pytest.raises(ConfigError, match="interpolation"):
            check_config(whole)
        copy = tampered(run, tmp_path / place, lambda state, whole=whole: state.update(config=whole))
        with pytest.raises(ConfigError, match="interpolation"):
            load_run(copy)
    with pytest.raises(ConfigError, match="interpolation"):
        check_config({**config(), "${oc.env:SECRET}": 1})


def test_a_config_that_holds_itself():
    whole = config()
    whole["model"]["again"] = whole["model"]
    for check in (check_config, check_targets):
        with pytest.raises(ConfigError, match="levels"):
            check(whole)


# --- a whole config, all of whose parts are built when a run goes on


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("model=llama_tiny", "data=shakespeare", "optim=adamw", "schedule=wsd", "logger=wandb"),
        ("data=hub", "data.source.dataset=owner/name"),
        ("data=text_files", "data.source.path=x"),
    ],
)
def test_what_training_stores_is_trusted(overrides):
    check_config(config(*overrides))


@pytest.mark.parametrize(
    ("place", "node"),
    [
        ("data", {"_target_": "minitf.data.shakespeare.tiny_shakespeare"}),
        ("data", {"_target_": "minitf.data.store.save_checked", "path": "x", "value": 1}),
        ("data", {"_target_": "minitf.blocks.ffn.gelu.GELU"}),
        ("model", {"_target_": "minitf.data.module.DataModule"}),
        ("optim", {"_target_": "torch.optim.optimizer.torch.hub.load"}),
        ("trainer", {"_target_": "lightning.Trainer"}),
        ("logger", {"_target_": "minitf.training.loggers.csv", "run_dir": "/elsewhere"}),
        ("logger", {"_target_": "minitf.training.loggers.csv", "_args_": ["/elsewhere", {}]}),
        ("callbacks", {"_target_": "minitf.training.checkpoint.RunCheckpoint", "run_dir": "/elsewhere"}),
        ("more", {"deep": [{"_target_": "torch.nn.Linear"}]}),
        ("hydra", {"_target_": "minitf.blocks.ffn.gelu.GELU"}),
        ("_target_", "torch.nn.Linear"),
    ],
)
def test_each_part_is_made_of_its_own_package(place, node):
    with pytest.raises(ConfigError, match=r"(?i)not loaded|does not exist"):
        check_config({**config(), place: node})


@pytest.mark.parametrize("name", ["os", "builtins", "", "torch", "minitf", "hydra", "a b", ".", "os.path", 3])
def test_allow_cannot_trust_everything(name):
    for check in (check_config, check_targets):
        with pytest.raises(ConfigError, match="allow"):
            check(config(), allow=[name])
    with pytest.raises(ConfigError, match="list"):
        check_targets({}, allow="stranger")


def test_allow_trusts_one_package_and_no_other(trap):
    node = {"_target_": f"{trap}.part"}
    check_targets(node, allow=[trap])
    check_config({**config(), "optim": node}, allow=[trap])
    opened()  # the user has trusted it: it was imported
    sys.modules.pop(trap)
    for other in ("strange", "stranger.inner", "stranger_too"):
        with pytest.raises(ConfigError, match="not loaded"):
            check_targets(node, allow=[other])
