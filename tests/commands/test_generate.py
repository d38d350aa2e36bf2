import io
import shutil

import parts
import pytest
import torch
from runs import TOY, command, train_here, write_corpus

from minitf.cache.dynamic import Dynamic
from minitf.command_line import take_raw
from minitf.commands.generate import read_prompt, stream, write
from minitf.config import compose
from minitf.errors import ConfigError, DataError
from minitf.generation.sampling import Sample
from minitf.runs import check_targets, load_run

PROMPTS = ["", "def ", "Hello, world", "a=b", "(x) [1, 2]", "介绍一下你。", "  two spaces ", "${seed}", "'\"", "🙂\n\t"]


def written(run, prompt, make_cache, n, temperature=0):
    model, tokenizer, _ = load_run(run)
    sampler = Sample(temperature=temperature, top_k=None, top_p=None)
    pieces = stream(
        model, tokenizer, prompt, sampler=sampler, make_cache=make_cache, max_new_tokens=n, seed=0, stop=False
    )
    return list(pieces)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_prompt_reaches_the_model_as_typed(monkeypatch, prompt):
    monkeypatch.setattr("sys.argv", ["generate", "run=a folder, with=signs", f"prompt={prompt}", "seed=1"])
    assert take_raw(("run", "prompt")) == {"run": "a folder, with=signs", "prompt": prompt}


@pytest.mark.parametrize(("temperature", "variety"), [(0, 1), (1.0, 20)])
def test_cache_or_not_gives_the_same_text_past_the_position_table(toy, temperature, variety):
    # the table has 32 places
    with_cache, without = (written(toy, "the cat", c, 90, temperature) for c in (Dynamic, None))
    assert with_cache == without
    assert len(set(with_cache)) >= variety, "a text without variety would prove little"


def test_pieces_are_whole_characters(toy):
    model, tokenizer, _ = load_run(toy)
    sampler = Sample(temperature=3.0, top_k=None, top_p=None)
    args = {"sampler": sampler, "make_cache": Dynamic, "max_new_tokens": 200, "seed": 0, "stop": False}
    pieces = list(stream(model, tokenizer, "猫", **args))
    assert pieces == list(stream(model, tokenizer, "猫", **args)), "the same seed gives the same text"
    assert pieces != list(stream(model, tokenizer, "猫", **args | {"seed": 1}))
    assert any(len(p) == 0 for p in pieces), "no piece was held back: this model should write half characters"


def test_prompt_from_a_file_and_from_standard_input(tmp_path, monkeypatch):
    (tmp_path / "p.txt").write_bytes("\ufeffdef f():\n    ".encode())
    assert read_prompt({"prompt_file": str(tmp_path / "p.txt")}) == "def f():\n    "
    (tmp_path / "bad.txt").write_bytes(b"ab\x92c")
    with pytest.raises(DataError, match=r"bad.txt is not UTF-8: byte 0x92 at offset 2"):
        read_prompt({"prompt_file": str(tmp_path / "bad.txt")})
    with pytest.raises(DataError, match="cannot be read"):
        read_prompt({"prompt_file": str(tmp_path / "none.txt")})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("猫 \n".encode())))
    assert read_prompt({"prompt_file": "-"}) == "猫 \n"
    with pytest.raises(ConfigError, match="choose one"):
        read_prompt({"prompt_file": "x", "prompt": "y"})


def test_command_writes_the_prompt_and_the_text(toy, tmp_path):
    prompt = "猫, (a=b) "
    typed = [f"run={toy}", f"prompt={prompt}", "sampler.temperature=0", "max_new_tokens=8", "stop=false"]
    done = command("generate", *typed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == prompt + "".join(written(toy, prompt, Dynamic, 8)) + "\n"
    assert not list(tmp_path.iterdir()), "generating must write no files"


@pytest.mark.parametrize(("cache", "used"), [("dynamic", True), ("none", False)])
def test_the_command_does_what_was_typed(toy, capsys, monkeypatch, cache, used):
    updates, loaded = [], []
    update = Dynamic.update
    monkeypatch.setattr(Dynamic, "update", lambda self, *a, **k: updates.append(1) or update(self, *a, **k))
    monkeypatch.setattr("minitf.runs.load_run", lambda run, which, *a: loaded.append(which) or load_run(run, which, *a))

    def texts(*typed):
        write(compose("generate", [f"cache={cache}", *typed]), None, {"run": str(toy), "prompt": "the"})
        return capsys.readouterr().out

    short = ["max_new_tokens=12", "stop=false"]
    assert texts("sampler.temperature=0", "seed=1", *short) == texts("sampler.temperature=0", "seed=2", *short)
    assert texts("seed=1", *short) != texts("seed=2", *short)
    assert texts("seed=1", "sampler.top_k=1", *short) == texts("sampler.temperature=0", *short)
    assert bool(updates) == used
    texts("checkpoint=last", *short)
    assert set(loaded) == {"best", "last"}


@pytest.mark.slow
def test_a_ring_writes_what_a_model_with_a_window_writes(tmp_path, monkeypatch):
    """Past the end of the ring, in a process of its own."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    size = ["model/mask=sliding_window", "model.mask.window=6", "model/position=rope"]
    run = train_here(tmp_path / "run", [*TOY, *size, f"data.source.path={write_corpus(tmp_path / 'corpus')}"])
    typed = [f"run={run}", "prompt=the cat", "max_new_tokens=40", "stop=false"]

    def text(*cache):
        done = command("generate", *typed, *cache, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert text("cache=window", "cache.window=6") == text("cache=none") != text("cache=none", "seed=1")
    done = command("generate", *typed, "cache=window", "cache.window=5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "layer 0 reads further (mask SlidingWindow) than this Window cache keeps: the last 5 tokens" in done.stderr


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("window", "layer 0 reads further .mask Causal. .* Take a larger cache.window, cache=dynamic, or cache.exact="),
        ("streaming", "position=learned, which is added to the embedding once: choose"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused_before_anything_is_written(toy, capsys, cache, message):
    with pytest.raises(ConfigError, match=message):
        write(compose("generate", [f"cache={cache}"]), None, {"run": str(toy), "prompt": "the"})
    assert capsys.readouterr().out == ""


def test_stop_ends_where_a_document_ends(toy):
    model, tokenizer, _ = load_run(toy)

    def always_bos(logits, generators):
        return torch.full((len(logits),), tokenizer.bos_id)

    args = {"sampler": always_bos, "make_cache": Dynamic, "max_new_tokens": 9, "seed": 0}
    assert len(list(stream(model, tokenizer, "a", **args, stop=True))) == 1 + 1  # one token, and the flush
    assert len(list(stream(model, tokenizer, "a", **args, stop=False))) == 9 + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    parts.some_by_default(
        [
            ([], "run=FOLDER"),
            (["run=nowhere"], "no run folder nowhere"),
            (["run={toy}", "checkpoint=newest"], "'best', 'last', or"),
            (["run={toy}", "sampler.temperature=-1"], "temperature"),
            (["run={toy}", "prompt=" + "a" * 100], "position table"),
            (["run={toy}", "prompt=a", "+prompt=b"], "given twice"),
            (["run={toy}", "cache=dynamc"], "dynamic"),
        ],
        3,
    ),
)
def test_mistakes_give_one_message_and_code_2(toy, tmp_path, arguments, message):
    done = command("generate", *[a.replace("{toy}", str(toy)) for a in arguments], cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "torch.hub.load",
        "subprocess.run",
        "torch.nn.modules.module.torch.load",
        "torch.optim.optimizer.torch.hub.load",
        "minitf.config.os.system",
        "minitf.config.hydra.utils.get_method",
        "minitf.data.store.shutil.rmtree",
        "importlib.import_module",
        "torch.nn.functional.torch.load",
        "minitf.__version__",
        "minitf.files.write_json",
        "minitf.data.shakespeare.tiny_shakespeare",
        "lightning.fabric.utilities.seed.seed_everything",
    ],
)
def test_a_run_cannot_name_a_foreign_target(target):
    with pytest.raises(ConfigError):
        check_targets({"layers": [{"part": {"_target_": target}}]})


def test_a_target_cannot_hide_in_a_tuple():
    with pytest.raises(ConfigError, match="not loaded"):
        check_targets({"_target_": "torch.nn.Linear", "_args_": ({"_target_": "torch.load"},)})


def test_a_run_cannot_read_the_environment():
    with pytest.raises(ConfigError, match="interpolation"):
        check_targets({"_target_": "torch.nn.Linear", "bias": "${oc.env:HOME}"})


def test_a_tampered_run_is_refused_before_anything_runs(toy, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(toy, run)
    for path in (run / "checkpoints").iterdir():
        state = torch.load(path, weights_only=True)
        state["config"]["model"]["ffn"]["_target_"] = "os.system"
        torch.save(state, path)
    with pytest.raises(ConfigError, match=r"os.system.*not loaded"):
        load_run(run)


def test_load_run_names_what_is_missing(toy, tmp_path):
    with pytest.raises(ConfigError, match="no run folder"):
        load_run(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is no run folder of minitf"):
        load_run(tmp_path / "empty")
    (tmp_path / "empty" / "config.yaml").touch()
    with pytest.raises(ConfigError, match="no 'best' checkpoint"):
        load_run(tmp_path / "empty")
    run = tmp_path / "run"
    shutil.copytree(toy, run)
    (run / "tokenizer.json").unlink()
    with pytest.raises((ConfigError, DataError), match=r"tokenizer\.json"):
        load_run(run)
