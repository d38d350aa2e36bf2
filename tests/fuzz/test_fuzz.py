"""Random command lines: each trains, is stopped and goes on, or is refused in one message.

A finding names its seed. `pytest tests/fuzz -m slow --fuzz-seed SEED --fuzz-configs 1` repeats that one alone.
"""

import gc
import random
import shutil
import sys
import time
import traceback
from collections import Counter

import pytest

if sys.platform != "linux":
    pytest.skip("limits of time and memory within one process are Linux's", allow_module_level=True)

from config_generator import generate, groups, keys_of, options
from fuzz_run import Finding, try_case

from minitf.config import choices, compose
from minitf.kinds import known_keys

ENOUGH = 300  # of so many, some of everything is asked for


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A few short texts with several scripts; each has all the words."""
    folder = tmp_path_factory.mktemp("texts")
    words = "the cat sat on a mat and it was tired so then 猫 追 球 é 🙂 def return ( ) [ ] = , .".split()
    draw = random.Random(0)
    for i in range(12):
        lines = [" ".join(draw.sample(words, len(words))) for _ in range(2)]
        (folder / f"{i:02}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Nothing of the user's, and no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "MINITF_TRACE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def fuzz(seeds, corpus, folder):
    """Tries the command lines of the seeds; returns what came of each, what was chosen, and the findings as text."""
    outcomes, chosen, findings = Counter(), set(), []
    gc.collect()
    gc.freeze()  # or each collection walks through the libraries again
    for seed in seeds:
        case = generate(seed, corpus)
        chosen |= set(case.chosen.items())
        place = folder / str(seed)
        start = time.process_time()
        try:
            outcome = try_case(case, place)
        except Exception as error:
            outcome = "finding"
            told = str(error) if isinstance(error, Finding) else traceback.format_exc()
            findings.append(
                f"seed {seed}: pytest tests/fuzz -m slow --fuzz-seed {seed} --fuzz-configs 1\n"
                f"typed: {' '.join(case.overrides)}\nodd: {' '.join(case.odd)}\n{told}"
            )
        print(f"{seed} [{time.process_time() - start:.2f} s] {' '.join(case.odd)} -> {outcome}")
        outcomes[outcome.partition(":")[0]] += 1
        shutil.rmtree(place, ignore_errors=True)
    gc.unfreeze()
    print(dict(outcomes))
    return outcomes, chosen, findings


def test_a_few_command_lines(corpus, alone):
    outcomes, _, findings = fuzz(range(1008, 1013), corpus, alone)
    assert not findings, "\n\n".join(findings)
    assert set(outcomes) == {"trained", "refused"}


def test_a_fault_of_minitf_is_found_and_can_be_repeated(corpus, alone, monkeypatch):
    def faulty(*_):
        raise TypeError("a fault")

    monkeypatch.setattr("minitf.command_line.check", faulty)
    outcomes, _, (told,) = fuzz([1002], corpus, alone)
    assert outcomes == {"finding": 1}
    assert "--fuzz-seed 1002 --fuzz-configs 1" in told
    assert "TypeError: a fault" in told


@pytest.mark.slow
def test_every_command_line_trains_or_is_refused_in_one_message(corpus, alone, request):
    first, n = (request.config.getoption(name) for name in ("--fuzz-seed", "--fuzz-configs"))
    outcomes, chosen, findings = fuzz(range(first, first + n), corpus, alone)
    told = f"{n} command lines from seed {first} on: {dict(outcomes)}"
    request.config.get_terminal_writer().line(f"\n{told}")
    assert not findings, f"{told}\n\n" + "\n\n".join(findings)
    if n >= ENOUGH:
        assert outcomes["trained"] >= 0.3 * n, told
        assert outcomes["refused"] >= 0.2 * n, told
        missing = {(group, option) for group in groups() for option in options(group)} - chosen
        assert not missing, f"never chosen: {missing}"


def test_the_generator_reads_every_key_that_training_has():
    chosen = {group: option for group, option in choices("train").items() if option}
    known = known_keys(compose("train"))
    leaves = {key for key in known if not any(other.startswith(f"{key}.") for other in known)}
    assert set(keys_of(chosen)) == leaves


def test_a_seed_says_it_all(corpus):
    assert [generate(seed, corpus) for seed in range(20)] == [generate(seed, corpus) for seed in range(20)]
    assert len({" ".join(generate(seed, corpus).overrides) for seed in range(20)}) == 20
