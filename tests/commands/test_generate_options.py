"""The ways to write: batches, beams, drafts, prompt caches, comparison, loop, infilling, sources."""

import io
import json
import re

import pytest
from runs import TOY, train_here
from torch import nn

from minitf.command_line import Job
from minitf.commands.generate import take_stop_strings, write
from minitf.commands.write.kinds import SourceKind
from minitf.commands.write.memory import memory_told
from minitf.commands.write.prompts import read_prompts
from minitf.config import compose
from minitf.errors import ConfigError, DataError
from minitf.suited import suited
from minitf.training.stop import Interrupted, StopSignals

SHORT = ["max_new_tokens=8", "stop=false"]


def written(run, *typed, **raw):
    """What the command prints, run in this process."""
    choices = dict(one.split("=") for one in typed if one.startswith("cache="))
    job = Job(folder=None, choices=choices, overrides=list(typed), sweep=None)
    write(compose("generate", list(typed)), job, {"run": str(run), **raw})


@pytest.fixture
def out(capsys):
    """Call the command and get its standard output; `out.err` is what it said beside it."""

    def call(run, *typed, **raw):
        written(run, *typed, **raw)
        told = capsys.readouterr()
        call.err = told.err
        return told.out

    return call


@pytest.fixture(scope="module")
def runs(toy, tmp_path_factory):
    """Barely trained runs of the other kinds, over the corpus of the toy run."""
    base = tmp_path_factory.mktemp("kinds")
    few = ["trainer.max_steps=2", "schedule.warmup_steps=0", "trainer.val_every=2"]
    text = [*TOY, *few, f"data.source.path={toy.parent / 'corpus'}", "model.n_layers=1"]
    ids = [*few, "data.seq_len=12", "data.n_val=8", "data.batch_size=2", "model.d_model=16"]
    made = {
        "draft": text,
        "other": [*text, "data.tokenizer.vocab_size=280"],
        "fill": [*(bert := ["model=bert_tiny", "task=masked_lm"]), *suited(bert), *text],
        "source": [*(luong := ["model=luong"]), *suited(luong), *ids],
        "encdec": [*(encdec := ["model=encdec_tiny", "data=reverse"]), *suited(encdec), *ids],
        "points": [*(pointer := ["model=pointer_tiny"]), *suited(pointer), *ids],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(base / "cache"))
        return {name: train_here(base / name, overrides) for name, overrides in made.items()}


@pytest.fixture(scope="module")
def roped(toy, tmp_path_factory):
    """A run whose model has no end of positions, and reads everything."""
    few = ["trainer.max_steps=2", "schedule.warmup_steps=0", "trainer.val_every=2", "model/position=rope"]
    base = tmp_path_factory.mktemp("roped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(toy.parent / "cache"))
        return train_here(base / "run", [*TOY, *few, f"data.source.path={toy.parent / 'corpus'}"])


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def stdin(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_each_line_of_a_file_is_written_as_alone(toy, tmp_path, out):
    prompts = ["the", "", "the cat sat on", " 猫 追\t"]
    (tmp_path / "p.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    rows = objects(out(toy, *SHORT, "seed=3", "format=jsonl", prompts=str(tmp_path / "p.txt")))
    assert [(row["prompt"], row["seed"]) for row in rows] == list(zip(prompts, [3, 4, 5, 6], strict=True))
    for row in rows:
        (alone,) = objects(out(toy, *SHORT, f"seed={row['seed']}", "format=jsonl", prompt=row["prompt"]))
        assert (alone["text"], alone["ids"], alone["finished"]) == (row["text"], row["ids"], "length")
        assert alone["logprobs"] == pytest.approx(row["logprobs"], abs=1e-4)
        assert len(row["ids"]) == 8
    shown = out(toy, *SHORT, "seed=3", prompts=str(tmp_path / "p.txt"))
    wanted = [f"=== {i} of 4 ===\n{row['prompt']}{row['text']}\n" for i, row in enumerate(rows, start=1)]
    assert shown == "".join(wanted)


def test_lines_of_prompts(tmp_path, monkeypatch):
    stdin(monkeypatch, b"a \r\n\nb\x0cc")
    assert read_prompts({"prompts": "-"}) == ["a ", "", "b\x0cc"]
    stdin(monkeypatch, "\ufeffa\n\ufeffb\n".encode())
    assert read_prompts({"prompts": "-"}) == ["a", "b"]
    stdin(monkeypatch, b"\xef\xbb\xbfa\nb\x92\n")
    with pytest.raises(DataError, match=r"byte 0x92 at offset 6 \(line 2\)"):
        read_prompts({"prompts": "-"})
    stdin(monkeypatch, b"")
    with pytest.raises(DataError, match="is empty"):
        read_prompts({"prompts": "-"})


def test_stop_strings_are_taken_as_typed_and_end_the_text(toy, out, monkeypatch):
    monkeypatch.setattr("sys.argv", ["generate", "stop_string=, a", "seed=1", "stop_string=\n"])
    assert take_stop_strings() == [", a", "\n"]
    long = ["max_new_tokens=40", "stop=false", "format=jsonl"]
    (whole,) = objects(out(toy, *long, prompt="the"))
    stop = whole["text"][4:6]
    end = whole["text"].index(stop)
    (ended,) = objects(out(toy, *long, prompt="the", stop_string=["never in there", stop]))
    assert (ended["text"], ended["finished"]) == (whole["text"][:end], "stop string")
    assert ended["ids"] == whole["ids"][: len(ended["ids"])]
    assert out(toy, *long[:2], prompt="the", stop_string=[stop]) == f"the{whole['text'][:end]}\n"


def test_rules_reach_the_loop(toy, out):
    greedy = ["sampler.temperature=0", "max_new_tokens=20", "stop=false", "format=jsonl"]
    (plain,) = objects(out(toy, *greedy, prompt="the"))
    (once,) = objects(out(toy, *greedy, "no_repeat_ngram=1", prompt="the"))
    assert len(set(once["ids"])) == 20 > len(set(plain["ids"]))
    (other,) = objects(out(toy, *greedy, "repetition_penalty=50.0", prompt="the"))
    assert other["ids"] != plain["ids"]
    (min_p,) = objects(out(toy, *greedy[1:], "sampler.min_p=1.0", prompt="the"))
    assert min_p["ids"] == plain["ids"]
    (pieces,) = objects(out(toy, *greedy, "prefill_chunk=2", prompt="the"))
    assert pieces["ids"] == plain["ids"]


def test_beams_come_with_their_score(toy, out):
    rows = objects(out(toy, *SHORT, "beams=3", "n_best=2", "format=jsonl", prompt="the"))
    assert [row["rank"] for row in rows] == [1, 2]
    assert rows[0]["score"] >= rows[1]["score"]
    assert rows[0]["score"] == pytest.approx(sum(rows[0]["logprobs"]) / 8)
    assert rows[0]["seed"] is None
    shown = out(toy, *SHORT, "beams=3", prompt="the")
    assert shown == f"=== 1 of 1, score {rows[0]['score']:.4f}, length ===\nthe{rows[0]['text']}\n"


@pytest.mark.slow
def test_a_draft_changes_the_speed_alone(toy, runs, out):
    greedy = [*SHORT, "sampler.temperature=0"]
    assert out(toy, *greedy, "n_draft=2", prompt="the", draft=str(runs["draft"])) == out(toy, *greedy, prompt="the")
    out(toy, *greedy, prompt="the", draft=str(toy))
    assert "drafted tokens accepted (100%)" in out.err
    with pytest.raises(ConfigError, match="different tokenizers"):
        out(toy, *greedy, prompt="the", draft=str(runs["other"]))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_prompt_cache_is_written_then_read(toy, tmp_path, out, cache):
    typed = [*SHORT, f"cache={cache}"]
    plain = {prompt: out(toy, *typed, prompt=prompt) for prompt in ("the cat", "the cat sat", "the", "a cat")}
    file = str(tmp_path / "kept")
    assert out(toy, *typed, prompt="the cat", prompt_cache=file) == plain["the cat"]
    assert "saved" in out.err
    for prompt, text in plain.items():
        assert out(toy, *typed, prompt=prompt, prompt_cache=file) == text
        assert "were read from it" in out.err
    (tmp_path / "kept").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read as a prefix"):
        out(toy, *typed, prompt="the", prompt_cache=file)


def test_a_prompt_cache_that_cannot_go_back_is_read_anew(roped, tmp_path, out):
    typed = [*SHORT, "cache=window", "cache.window=6", "cache.exact=false"]
    file = str(tmp_path / "kept")
    out(roped, *typed, prompt="the cat sat on the mat and so on", prompt_cache=file)
    other = "the cat sat in a house"
    plain = out(roped, *typed, prompt=other)
    assert out(roped, *typed, prompt=other, prompt_cache=file) == plain
    assert "tokens of the prompt, but goes on otherwise" in out.err
    assert "the prompt was read anew" in out.err


def test_a_cache_that_lets_the_model_read_less_says_so(roped, out):
    out(roped, "max_new_tokens=4", "cache=streaming", "cache.window=6", "compare=true", prompt="the")
    assert "compared: cache=streaming and none" in out.err
    assert "by its own setting (cache.exact=false) this cache lets the model read less, the last 6" in out.err


def test_the_failing_line_of_several_prompts_is_named(toy, runs, tmp_path, out):
    file = tmp_path / "p.txt"
    file.write_text(f"the\n{'a' * 100}\n")
    for more in ([], ["beams=2"]):
        with pytest.raises(ConfigError, match=r"line 2 of \S+p\.txt: the prompt has 101 tokens"):
            out(toy, *SHORT, *more, prompts=str(file))
    file.write_text("the [MASK]\n\n")
    with pytest.raises(DataError, match=r"line 2 of \S+p\.txt: '' has no place to fill"):
        out(runs["fill"], prompts=str(file))
    file.write_text("1 2\n3\n4 x\n")
    with pytest.raises(DataError, match=r"line 3 of \S+p\.txt: '4 x' is no source"):
        out(runs["source"], prompts=str(file))


# sizes that no memory has: before anything is written where that can be told, and never with a trace
TOO_LARGE = [
    ("cache=static cache.max_len=100000000000", r"takes [\d,]+ bytes in each layer.* make cache\.max_len smaller"),
    ("cache=static cache.max_len=99999999999999999999999999", r"make cache\.max_len smaller"),
    ("cache=static max_new_tokens=100000000000", r"write fewer tokens \(max_new_tokens\)"),
    ("cache=streaming cache.window=100000000000", r"make cache\.window"),
    ("cache=int8 cache@cache.inner=static cache.inner.max_len=100000000000", r"make cache\.inner\.max_len smaller"),
    ("beams=1000000000", r"1,000,000,000 beams take [\d,]+ bytes"),
]


@pytest.mark.parametrize(("typed", "message"), TOO_LARGE)
def test_what_no_memory_holds_is_told(roped, typed, message):
    with pytest.raises(ConfigError, match=message):
        written(roped, *typed.split(), prompt="the")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            "too small: 9 bytes",
        ),
        (RuntimeError("Storage size calculation overflowed with sizes=[9]"), "beyond what any tensor can have"),
        (OverflowError("Python int too large to convert to C long"), "beyond what any tensor can have"),
        (MemoryError(), "does not fit"),
        (RuntimeError("a fault of minitf"), None),
    ],
)
def test_memory_that_runs_out_on_the_way_is_told(error, message):
    with pytest.raises(ConfigError if message else RuntimeError, match=message or "a fault"), memory_told():
        raise error


def test_a_comparison_tells_what_it_found(toy, tmp_path, out, capsys, monkeypatch):
    (tmp_path / "p.txt").write_text("the\na cat\n")
    out(toy, *SHORT, "compare=true", prompts=str(tmp_path / "p.txt"))
    assert "first difference: none in 8 steps" in out.err
    assert "tokens/s" in out.err
    assert "So few measure chance: write 102 tokens or more" in out.err
    # two layers, keys and values, two rows, 4 and 7 read tokens of a prompt at most, 32 numbers of 4 bytes
    n_bytes = int(re.search(r"memory: ([\d,]+) bytes", out.err)[1].replace(",", ""))
    assert n_bytes % (2 * 2 * 2 * 32 * 4) == 0
    assert n_bytes // (2 * 2 * 2 * 32 * 4) in range(7 + 2, 7 + 8)

    from minitf.cache.dynamic import Dynamic

    update = Dynamic.update

    def wrong(self, *entries, **more):
        (k, v), *rest = update(self, *entries, **more)
        return (k, v * (1 if self.n_seen < 5 else -9)), *rest

    monkeypatch.setattr(Dynamic, "update", wrong)
    with pytest.raises(SystemExit) as ended:
        out(toy, "max_new_tokens=20", "stop=false", "compare=true", prompt="the")
    told = capsys.readouterr()
    assert ended.value.code == 1
    assert "first difference: new token" in told.err
    assert "error: the text with a cache is not the text without one" in told.err
    assert told.out.startswith("the")


def test_a_loop_writes_for_each_line(toy, out, monkeypatch, tmp_path):
    (tmp_path / "p.txt").write_text("the\na cat\n")
    rows = objects(out(toy, *SHORT, "format=jsonl", prompts=str(tmp_path / "p.txt")))
    stdin(monkeypatch, b"the\na cat\n\nnever")
    assert out(toy, *SHORT, "interactive=true") == "".join(f"{row['prompt']}{row['text']}\n" for row in rows)
    stdin(monkeypatch, f"\ufeff{'a' * 100}\n\ufeffthe".encode() + b"\nx\x92\n\xef\xbb\xbf\nnever\n")
    long, row, bad = objects(out(toy, *SHORT, "interactive=true", "format=jsonl"))
    assert (row["prompt"], row["ids"]) == (
        "the",
        objects(out(toy, *SHORT, "seed=1", "format=jsonl", prompt="the"))[0]["ids"],
    )
    assert (long["prompt"], bad["prompt"]) == ("a" * 100, "x\ufffd")
    assert "position table" in long["error"]
    assert "this line is not UTF-8: byte 0x92 at offset 1" in bad["error"]


@pytest.mark.parametrize(("signal", "ends"), [("SIGINT", False), ("SIGTERM", True)])
def test_ctrl_c_ends_a_text_and_not_the_loop(toy, capsys, monkeypatch, signal, ends):
    stdin(monkeypatch, b"the\na cat\n")
    stop = StopSignals()
    seen = []

    def write_and_signal(text):
        seen.append(text)
        if len(seen) == 3:
            stop.requested = signal

    monkeypatch.setattr("minitf.commands.write.loop.show", write_and_signal)
    typed = [*SHORT, "interactive=true"]
    job = Job(folder=None, choices={}, overrides=typed, sweep=None, stop=stop)
    call = (compose("generate", typed), job, {"run": str(toy)})
    if ends:
        with pytest.raises(Interrupted):
            write(*call)
    else:
        write(*call)
    _, *second = "".join(seen).split("\n")[:-1]
    assert len(seen[: seen.index("\n")]) == 1 + 2 + 1, "prompt, two tokens, and what was held back"
    assert len(second) == (0 if ends else 1)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_signal_gives_out_what_was_written(toy, tmp_path, capsys, name, as_json):
    class After(StopSignals):
        """A signal comes during the third step."""

        n = 0

        def hold(self):
            super().hold()
            self.n += 1
            self.requested = name if self.n == 3 else self.requested

    (tmp_path / "p.txt").write_text("the\na cat\n")
    typed = [*SHORT, f"format={'jsonl' if as_json else 'text'}"]
    raw = {"run": str(toy), "prompts": str(tmp_path / "p.txt")}
    job = Job(folder=None, choices={}, overrides=typed, sweep=None, stop=After())
    with pytest.raises(Interrupted) as ended:
        write(compose("generate", typed), job, raw)
    told = capsys.readouterr()
    assert ended.value.name == name
    assert (told.err, ended.value.told) == (f"interrupted by {name}\n", True)
    write(compose("generate", ["max_new_tokens=3", *typed[1:]]), None, raw)
    whole = capsys.readouterr().out
    if as_json:
        rows = objects(told.out)
        assert [row["finished"] for row in rows] == ["interrupted"] * 2
        assert [row["ids"] for row in rows] == [row["ids"] for row in objects(whole)]
    else:
        assert told.out == whole


def test_masked_places_are_filled(runs, out):
    prompt = "the [MASK] sat, [MASK][MASK]猫"
    (row,) = objects(out(runs["fill"], "format=jsonl", prompt=prompt))
    assert (row["prompt"], row["finished"]) == (prompt, "filled")
    assert row["text"].startswith("the ")
    assert row["text"].endswith("猫")
    assert "[MASK]" not in row["text"]
    assert len(row["order"]) == len(row["logprobs"]) == 3
    assert all(row["ids"][place] < 298 for place in row["order"])
    assert out(runs["fill"], prompt=prompt) == row["text"] + "\n"
    with pytest.raises(DataError, match=r"has no place to fill.*\[MASK\]"):
        out(runs["fill"], prompt="the cat")


@pytest.mark.parametrize("name", ["source", "encdec"])
def test_a_source_of_ids_gives_ids(runs, out, tmp_path, name):
    (tmp_path / "p.txt").write_text("3 1 2\n5\n4 4 1 0 2\n")
    typed = ["max_new_tokens=6", "format=jsonl"]
    rows = objects(out(runs[name], *typed, "compare=true", prompts=str(tmp_path / "p.txt")))
    for row in rows:
        (alone,) = objects(out(runs[name], *typed, f"seed={row['seed']}", "cache=none", prompt=row["prompt"]))
        assert alone["ids"] == row["ids"]
    end = 16 if rows[0]["finished"] == "length" else rows[0]["ids"][-1]
    assert rows[0]["text"].split() == [str(i) for i in rows[0]["ids"] if i != end]
    assert out(runs[name], "max_new_tokens=6", prompt="3 1 2") == f"3 1 2 -> {rows[0]['text']}\n"
    assert objects(out(runs[name], *typed, "beams=2", prompt="3 1 2"))[0]["rank"] == 1


@pytest.mark.parametrize("wrong", ["", "3 x", "3 99", "-1", "²", "1" * 5000], ids=lambda text: text[:9])
def test_what_is_no_source_is_refused(wrong):
    model = nn.Module()
    model.source_embedding = model.embedding = nn.Embedding(17, 2)
    with pytest.raises(DataError, match="is no source for this run"):
        SourceKind(model).read(model, [wrong])


# (typed, taken as typed, what the message must say); none needs the model
APART = [
    ("", {"prompt": "a", "prompts": "b"}, "prompt and prompts were both given"),
    ("interactive=true", {"prompt": "a"}, "interactive and prompt do not go together"),
    ("interactive=true compare=true", {}, "interactive and compare"),
    ("interactive=true", {"prompt_cache": "x"}, "interactive and prompt_cache"),
    ("interactive=true beams=2", {}, "interactive and beams"),
    ("beams=2 sampler.temperature=0.5", {}, "beams and sampler do not go together: beam search draws nothing"),
    ("beams=2 seed=1", {}, "beams and seed"),
    ("beams=2", {"draft": "x"}, "beams and draft"),
    ("beams=2", {"stop_string": ["x"]}, "beams and stop_string"),
    ("beams=2", {"prompt_cache": "x"}, "beams and prompt_cache"),
    ("beams=2 compare=true", {}, "beams and compare"),
    ("", {"draft": "x", "prompts": "y"}, "draft and prompts"),
    ("", {"draft": "x", "prompt_cache": "y"}, "draft and prompt_cache"),
    ("prefill_chunk=2", {"draft": "x"}, "draft and prefill_chunk"),
    ("compare=true", {"draft": "x"}, "draft and compare"),
    ("repetition_penalty=1.2", {"draft": "x"}, "draft and repetition_penalty"),
    ("no_repeat_ngram=2", {"draft": "x"}, "draft and no_repeat_ngram"),
    ("min_new_tokens=2", {"draft": "x"}, "draft and min_new_tokens"),
    ("", {"prompt_cache": "x", "prompts": "y"}, "prompt_cache and prompts"),
    ("compare=true", {"prompt_cache": "x"}, "prompt_cache and compare"),
    ("cache=none compare=true", {}, "cache=none and compare"),
    ("cache=none", {"prompt_cache": "x"}, "cache=none and prompt_cache"),
    ("cache=none prefill_chunk=3", {}, "cache=none and prefill_chunk"),
    ("n_best=2", {}, "n_best is a part of beams=4"),
    ("length_penalty=2.0", {}, "length_penalty is a part of beams=4"),
    ("n_draft=2", {}, "n_draft is a part of draft=FOLDER"),
    ("beams=2 n_best=3", {}, "beams=2 cannot give n_best=3"),
    ("format=json", {}, "format must be text or jsonl"),
    ("beams=0", {}, "beams must be at least 1"),
    ("max_new_tokens=0", {}, "max_new_tokens must be at least 1"),
    ("prefill_chunk=0", {}, "prefill_chunk must be a whole number"),
    ("steps=two", {}, "steps must be a whole number"),
    ("min_new_tokens=300", {}, "is more than max_new_tokens"),
    ("min_new_tokens=3 stop=false", {}, "min_new_tokens puts off the end"),
    ("", {"stop_string": [""]}, "stop_string is empty"),
    ("", {"prompts": "nowhere"}, "nowhere cannot be read"),
    ("", {"prompts": ""}, "prompts= is empty, which is no path: .* null"),
    ("", {"prompt_file": ""}, "prompt_file= is empty"),
    ("", {"draft": ""}, "draft= is empty"),
    ("", {"prompt_cache": ""}, "prompt_cache= is empty"),
    ("", {"prompt_cache": "nowhere/x"}, "nowhere, which is no folder: make it first"),
    ("", {"prompt_cache": "."}, "prompt_cache=. is no file"),
    ("allow=[nowhere_at_all]", {}, "there is no package 'nowhere_at_all' here"),
    ("allow=[minitf.nowhere]", {}, "there is no package 'minitf.nowhere' here"),
    ("beams=2 length_penalty=-400 max_new_tokens=2", {}, "length_penalty must lie between -10 and 10"),
    ("cache._partial_=false", {}, "gives one cache for all layers"),
    ("cache._target_=other", {}, "cache._target_=other names nothing"),
    ("cache._target_=builtins.dict", {}, "cache._target_=builtins.dict"),
    ("cache._target_=minitf.cache.window.Window", {}, "missing 1 required .* 'window'"),
    ("sampler._target_=builtins.dict", {}, "gives no sampler"),
    ("cache=int8 cache@cache.inner=window cache.inner.window=0", {}, "^cache.inner.window must be"),
]


@pytest.mark.parametrize(("typed", "raw", "message"), APART, ids=[message for _, _, message in APART])
def test_what_does_not_go_together_is_refused_before_the_model_is_loaded(tmp_path, monkeypatch, typed, raw, message):
    def loaded(*anything):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("minitf.runs.load_run", loaded)
    if raw.get("draft"):
        raw = raw | {"draft": str(tmp_path)}
    with pytest.raises((ConfigError, DataError), match=message):
        written(tmp_path, *typed.split(), **raw)


@pytest.mark.parametrize(
    ("name", "typed", "raw", "message"),
    [
        ("fill", "beams=2", {}, "beams is not for a model that fills"),
        ("fill", "cache=static", {}, "cache is not for"),
        ("fill", "max_new_tokens=3", {}, "max_new_tokens is not for"),
        ("fill", "repetition_penalty=2.0", {}, "repetition_penalty is not for"),
        ("fill", "compare=true", {}, "compare is not for"),
        ("fill", "compile=true", {}, "compile is not for"),
        ("fill", "", {"stop_string": ["x"]}, "stop_string is not for"),
        ("fill", "", {"prompt_cache": "x"}, "prompt_cache is not for"),
        ("fill", "", {}, r"give a text with \[MASK\]"),
        ("source", "steps=2", {}, "steps is not for"),
        ("source", "prefill_chunk=2", {}, "prefill_chunk is not for"),
        ("source", "", {"stop_string": ["x"]}, "stop_string is not for"),
        ("source", "", {"prompt_cache": "x"}, "prompt_cache is not for"),
        ("source", "", {}, "this run's model reads a source: give its ids"),
        ("draft", "steps=2", {}, "steps is not for a model that goes on with a text"),
        ("points", "", {"prompt": "1 2"}, "does not go on with a text: its PointerHead points at places"),
    ],
)
def test_what_a_kind_of_model_cannot_do_is_refused(runs, name, typed, raw, message):
    with pytest.raises(ConfigError, match=message):
        written(runs[name], *typed.split(), **raw)


def test_a_draft_for_a_source_is_refused(runs):
    with pytest.raises(ConfigError, match="draft is not for a model that reads a source"):
        written(runs["source"], prompt="1 2", draft=str(runs["draft"]))


def test_a_run_that_labels_is_refused(toy, tmp_path):
    few = ["trainer.max_steps=1", "schedule.warmup_steps=0", "data.n_val=8", "data.batch_size=2", "model.d_model=16"]
    task = ["model=bert_tiny", "task=tag", "data=histogram"]
    run = train_here(tmp_path / "run", [*task, *suited(task), *few, "data.seq_len=12", "model.n_layers=1"])
    with pytest.raises(ConfigError, match="its TokenHead gives labels"):
        written(run, prompt="1 2")
