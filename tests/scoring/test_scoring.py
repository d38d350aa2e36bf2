"""Each score against an example worked out by hand, and against the wrong way to sum it."""

import random
import sys

import pytest
import torch

from minitf.errors import DataError
from minitf.scoring.bleu import corpus_bleu
from minitf.scoring.edit import edit_distance, error_sums
from minitf.scoring.f1 import macro_f1


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("", "abc", 3),
        ("abc", "", 3),
        ("", "", 0),
        ("ab", "ba", 2),
    ],
)
def test_worked_examples(a, b, distance):
    assert edit_distance(a, b) == distance
    assert edit_distance(list(map(ord, a)), list(map(ord, b))) == distance


def test_it_is_a_distance():
    draw = random.Random(0)
    for _ in range(200):
        a, b, c = ([draw.randrange(3) for _ in range(draw.randrange(7))] for _ in range(3))
        ab = edit_distance(a, b)
        assert ab == edit_distance(b, a)
        assert (ab == 0) == (a == b)
        assert abs(len(a) - len(b)) <= ab <= max(len(a), len(b))
        assert ab <= edit_distance(a, c) + edit_distance(c, b)
        assert edit_distance([*a, 9], [*b, 9]) == ab


def test_error_rates_are_sums_over_sums():
    sums = error_sums([[1], [5, 2, 3, 4, 5, 6, 7, 8, 9]], [[[2]], [[1, 2, 3, 4, 5, 6, 7, 8, 9]]])
    assert (sums.edits, sums.n_tokens, sums.n_wrong, sums.n_rows) == (2, 10, 2, 2)
    assert sums.token_error_rate == 0.2  # the mean of the rows' rates would be (1 + 1/9) / 2
    assert sums.sequence_error_rate == 1.0


def test_the_best_of_several_references_counts():
    # tomato: T AH M EY T OW or T AH M AA T OW
    references = [["T AH M EY T OW".split(), "T AH M AA T OW".split()], ["DH AH".split(), "DH IY".split(), ["DH"]]]
    sums = error_sums(["T AH M AA T OW".split(), "DH IH".split()], references)
    assert (sums.edits, sums.n_tokens, sums.n_wrong, sums.n_rows) == (1, 6 + 2, 1, 2)


@pytest.mark.parametrize("references", [[[]], [[[]]]])
def test_nothing_to_compare_with_is_refused(references):
    with pytest.raises(DataError):
        error_sums([[1]], references)


def test_macro_f1_of_a_split_is_no_mean_of_batches():
    # right 0 0 0 1 1 2, one not scored; predicted 0 0 1 1 0 2: F1 is 2/3, 1/2, 1 for the three classes
    predicted, right = torch.tensor([0, 0, 1, 1, 0, 2, 1]), torch.tensor([0, 0, 0, 1, 1, 2, -100])
    by_hand = (2 / 3 + 1 / 2 + 1) / 3
    for cut in ([7], [1, 6], [4, 1, 2]):
        batches = list(zip(predicted.split(cut), right.split(cut), strict=True))
        assert macro_f1(batches, 3, -100) == pytest.approx(by_hand)
        assert macro_f1(batches, 5, -100) == pytest.approx(by_hand), "classes that do not occur count"
    parts = [macro_f1([part], 3, -100) for part in zip(predicted.split([4, 3]), right.split([4, 3]), strict=True)]
    assert sum(parts) / 2 != pytest.approx(by_hand, abs=0.01)


def test_bleu_counts_over_the_corpus_and_any_reference():
    pytest.importorskip("sacrebleu")
    # n-grams of one row: 5/6, 3/5, 2/4, 1/3, of equal length: (0.0833)^(1/4)
    one, signature = corpus_bleu(["the cat sat on the mat"], [["the cat sat on a mat"]])
    assert one == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert "tok:13a" in signature
    written = ["the cat sat on the mat", "a dog and a bird and a fish lay down"]
    references = [["the cat sat on a mat", "the cat sat on the mat"], ["a dog and a cow and a fish sat down"]]
    both, _ = corpus_bleu(written, references)
    mean = sum(corpus_bleu([w], [r])[0] for w, r in zip(written, references, strict=True)) / 2
    # 6 + 8 of 16 words, 5 + 5 of 14 pairs, 4 + 3 of 12 (a dog and, dog and a, and a fish), 3 + 1 of 10
    assert both == pytest.approx(100 * (14 / 16 * 10 / 14 * 7 / 12 * 4 / 10) ** 0.25)
    assert both != pytest.approx(mean, abs=1)


def test_bleu_without_sacrebleu_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(DataError, match=r"pip install \"minitf\[data\]\""):
        corpus_bleu(["a"], [["a"]])
