from pathlib import Path

import pytest

from minitf.commands import summary

METRICS = {
    "final": {"val/loss": 3.0, "val/bits_per_byte": 1.5},
    "best": {"step": 7, "val/loss": 2.5},
    "baseline": {"witten_bell_byte_5gram_bits_per_byte": 2.0},
    "n_params": 1234567,
    "train_tokens_per_s": 999,
    "train_seconds": 12.3,
}


@pytest.mark.parametrize(("ngram", "verdict"), [(2.0, "the model is better"), (1.5, "NOT better"), (1.0, "NOT better")])
def test_the_verdict_follows_the_numbers(ngram, verdict):
    metrics = METRICS | {"baseline": {"witten_bell_byte_5gram_bits_per_byte": ngram}}
    text = summary.describe(metrics, "a\nb", "it's", Path("runs/a b"))
    assert verdict in text
    assert "3.0000 nats per token = 1.5000 bits per byte" in text
    assert "2.5000 nats per token at step 7" in text
    assert "1,234,567" in text
    assert "  | a\n  | b\n" in text


def test_answers_are_told_one_by_one_and_as_whole_rows():
    final = {"val/loss": 3.0, "val/accuracy": 0.75, "val/exact": 0.5}
    text = summary.describe(METRICS | {"final": final}, None, "", Path("runs/a"))
    assert "accuracy          0.7500" in text
    assert "exact match       0.5000 of the rows" in text
    assert "exact match" not in summary.describe(METRICS, None, "", Path("runs/a"))


def test_the_next_commands_survive_a_shell():
    text = summary.describe(METRICS, "", "it's", Path("runs/a b"), has_heads=True)
    assert "analyze.py run='runs/a b'" in text or "minitf-analyze run='runs/a b'" in text
    assert "analyze" not in summary.describe(METRICS, None, "", Path("runs/a b"))
    assert "run='runs/a b' prompt='it'\"'\"'s'" in text


@pytest.mark.parametrize(
    ("script", "expected"),
    [("scripts/train.py", "python scripts/generate.py"), ("/bin/minitf-train", "minitf-generate")],
)
def test_the_next_command_is_started_as_this_one_was(monkeypatch, script, expected):
    monkeypatch.setattr("sys.argv", [script])
    assert summary.command("generate") == expected
