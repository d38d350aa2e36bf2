import copy
import io
import os

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from training_stubs import MUON, Batches, TinyDecoder, fit, make_task, tokens

from minitf.errors import ConfigError
from minitf.training import checkpoint as module
from minitf.training.checkpoint import (
    AtomicCheckpointIO,
    find_checkpoint,
    load_weights,
    model_weights,
    read_checkpoint,
)
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.saving import RunCheckpoint


class Losses(Callback):
    """Replace the validation losses by given ones, and note the files after each."""

    def __init__(self, values, folder=None):
        self.values, self.folder, self.files = list(values), folder, []

    def on_validation_end(self, trainer, pl_module):
        trainer.callback_metrics["val/loss"] = torch.tensor(self.values.pop(0))

    def on_train_batch_start(self, trainer, *args):
        if self.folder and self.folder.exists():
            self.files.append(sorted(path.name for path in self.folder.iterdir()))


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_last_is_the_newest_and_best_the_lowest(tmp_path):
    losses = Losses([2.0, 1.0, 3.0, 1.5, 4.0], tmp_path / "checkpoints")
    fit(make_task(), tmp_path, Batches(9), max_steps=9, val_every=2, callbacks=[losses])
    assert losses.files == [  # before each step from the third on: exactly one of each
        *[["best-step=2.ckpt", "last-step=2.ckpt"]] * 2,
        *[["best-step=4.ckpt", "last-step=4.ckpt"]] * 2,
        *[["best-step=4.ckpt", "last-step=6.ckpt"]] * 2,
        ["best-step=4.ckpt", "last-step=8.ckpt"],
    ]
    assert names(tmp_path) == ["best-step=4.ckpt", "last-step=9.ckpt"]
    for which, step in (("best", 4), ("last", 9)):
        saved = read_checkpoint(find_checkpoint(tmp_path, which))
        assert saved["global_step"] == step
        load_weights(TinyDecoder(seed=7), model_weights(saved))


def test_rising_losses_keep_the_first_as_best(tmp_path):
    fit(make_task(), tmp_path, Batches(3), max_steps=3, val_every=1, callbacks=[Losses([1.0, 2.0, 3.0])])
    assert names(tmp_path) == ["best-step=1.ckpt", "last-step=3.ckpt"]


def test_a_resumed_run_remembers_its_best(tmp_path):
    fit(make_task(), tmp_path, Batches(4), max_steps=2, val_every=1, callbacks=[Losses([1.0, 2.0])])
    last = find_checkpoint(tmp_path, "last")
    rest = Batches(4, start_step=2)
    fit(make_task(), tmp_path, rest, max_steps=4, val_every=1, callbacks=[Losses([1.5, 1.7])], ckpt_path=last)
    assert names(tmp_path) == ["best-step=1.ckpt", "last-step=4.ckpt"]


def test_a_checkpoint_holds_plain_things_only_and_the_config(tmp_path):
    fit(make_task(optimizer=MUON), tmp_path, Batches(2), max_steps=2)
    saved = torch.load(find_checkpoint(tmp_path, "last"), weights_only=True)
    assert saved["config"] == {"seed": 0}
    assert all(name.startswith("model.") for name in saved["state_dict"])

    def walk(value):
        if isinstance(value, dict):
            assert all(isinstance(key, str | int) for key in value)
            return [leaf for item in value.values() for leaf in walk(item)]
        if isinstance(value, list | tuple):
            return [leaf for item in value for leaf in walk(item)]
        return [value]

    assert {type(leaf) for leaf in walk(saved)} <= {torch.Tensor, str, int, float, bool, type(None)}


def test_a_config_that_could_not_be_loaded_again_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"config.a\[1\] is a PosixPath|config.a\[1\] is a WindowsPath"):
        RunCheckpoint(tmp_path, {"a": [1, tmp_path]})


def test_a_failing_write_leaves_the_older_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "last-step=1.ckpt"
    AtomicCheckpointIO().save_checkpoint({"a": 1}, path)

    def full_disk(value, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        AtomicCheckpointIO().save_checkpoint({"a": 2}, path)
    assert read_checkpoint(path) == {"a": 1}
    assert os.listdir(tmp_path) == [path.name]


def test_without_hard_links_best_is_a_copy(tmp_path, monkeypatch):
    def no_links(*args):
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", no_links)
    fit(make_task(), tmp_path, Batches(2), max_steps=2)
    assert names(tmp_path) == ["best-step=2.ckpt", "last-step=2.ckpt"]
    assert read_checkpoint(find_checkpoint(tmp_path))["global_step"] == 2


def test_find_checkpoint_says_what_is_there(tmp_path):
    with pytest.raises(ConfigError, match="no run folder"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no checkpoint at all"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    for step in (9, 10):  # killed between writing the new one and removing the old one
        (tmp_path / "checkpoints" / f"last-step={step}.ckpt").touch()
    assert find_checkpoint(tmp_path, "last").name == "last-step=10.ckpt"
    with pytest.raises(ConfigError, match=r"no 'best' checkpoint; it has last-step=9.ckpt, last-step=10.ckpt"):
        find_checkpoint(tmp_path, "best")
    with pytest.raises(ConfigError, match="'newest'"):
        find_checkpoint(tmp_path, "newest")
    (tmp_path / "checkpoints" / "snapshot-step=8.ckpt").touch()
    assert find_checkpoint(tmp_path, 8).name == find_checkpoint(tmp_path, "8").name == "snapshot-step=8.ckpt"
    with pytest.raises(ConfigError, match=r"no snapshot of step 7; it has .*snapshot-step=8.ckpt"):
        find_checkpoint(tmp_path, 7)


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


@pytest.mark.parametrize("kind", ["cut short", "empty", "text", "code"])
def test_unreadable_files_are_named(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    torch.save({"code": Evil()} if kind == "code" else {"a": torch.zeros(1000)}, file)
    data = {"cut short": file.getvalue()[:900], "empty": b"", "text": b"hello", "code": file.getvalue()}[kind]
    (tmp_path / "x.ckpt").write_bytes(data)
    with pytest.raises(ConfigError, match=r"x.ckpt' cannot be read as a checkpoint"):
        read_checkpoint(tmp_path / "x.ckpt")
    assert not (tmp_path / "executed").exists()
    with pytest.raises(ConfigError, match="no checkpoint"):
        read_checkpoint(tmp_path / "y.ckpt")


def loss_of(model):
    ids = tokens(0, 3)
    return CausalLM()(model, {"ids": ids[:, :-1], "targets": ids[:, 1:]})[0]


def test_a_compiled_model_and_a_plain_one_load_each_other():
    for save, load in ((torch.compile, lambda m: m), (lambda m: m, torch.compile)):
        source, target = save(TinyDecoder(seed=1)), load(TinyDecoder(seed=2))
        load_weights(target, source.state_dict())
        assert loss_of(target) == loss_of(source)


def test_misfits_are_listed_and_nothing_is_loaded():
    model = TinyDecoder(seed=1)
    before = copy.deepcopy(model.state_dict())
    stored = TinyDecoder(seed=2).state_dict()
    stored["up.weights"] = stored.pop("up.weight")  # renamed
    del stored["norm.bias"]
    stored["extra"] = torch.zeros(1)
    stored["down.bias"] = torch.zeros(3)
    with pytest.raises(ConfigError) as error:
        load_weights(model, stored)
    text = str(error.value)
    for expected in (
        "missing: up.weight",
        "missing: norm.bias",
        "unexpected: up.weights",
        "unexpected: extra",
        "shape of down.bias: (3,) stored, (8,) in the model",
    ):
        assert expected in text
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(ConfigError, match="no model weights"):
        model_weights({"state_dict": {}})


def test_a_shared_weight_stays_shared_and_two_values_for_it_are_refused():
    source = TinyDecoder(seed=1)
    stored = copy.deepcopy(source.state_dict())
    model = TinyDecoder(seed=2)
    load_weights(model, stored)
    assert model.unembedding.weight.data_ptr() == model.embedding.weight.data_ptr()
    assert loss_of(model) == loss_of(source)
    stored["unembedding.weight"] = stored["unembedding.weight"] + 1
    with pytest.raises(ConfigError, match="are one shared weight"):
        load_weights(model, stored)
