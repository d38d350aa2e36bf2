import math
import random
from collections import defaultdict

import numpy as np
import pytest

from minitf.data import ngram
from minitf.data.ngram import WittenBell, witten_bell_bits_per_byte


def slow_bits_per_byte(train, val, order):
    """The definition, with a dictionary and a recursion."""
    after = defaultdict(lambda: defaultdict(int))
    for doc in train:
        for i in range(len(doc)):
            for n in range(min(order - 1, i) + 1):
                after[doc[i - n : i]][doc[i]] += 1

    def p(context, byte):
        lower = p(context[1:], byte) if context else 1 / 256
        seen = after.get(context)
        if not seen:
            return lower
        return (seen.get(byte, 0) + len(seen) * lower) / (sum(seen.values()) + len(seen))

    bits = [-math.log2(p(doc[max(0, i - order + 1) : i], doc[i])) for doc in val for i in range(len(doc))]
    return sum(bits) / len(bits)


def documents(seed, n):
    chooser = random.Random(seed)
    words = [b"the ", b"cat ", b"sat ", b"on ", b"a ", b"\xff\x00", b"mat\n", b"\n"]
    return [b"".join(chooser.choices(words, k=chooser.randrange(12))) for _ in range(n)] + [b"x", b"", b"\xfe\xfe"]


@pytest.mark.parametrize("order", [1, 2, 3, 5, 8])
def test_equals_the_definition(order):
    train, val = documents(0, 60), documents(1, 20)
    expected = slow_bits_per_byte(train, val, order)
    assert witten_bell_bits_per_byte(train, val, order) == pytest.approx(expected, rel=1e-12)


def test_worked_by_hand():
    # "aab": c(a) = 2, c(b) = 1, t = 2 -> P(a) = (2 + 2/256) / 5; after a: a and b once each, t = 2.
    p_a = (2 + 2 / 256) / 5
    assert WittenBell([b"aab"], order=2).probabilities([b"aa"]) == pytest.approx([p_a, (1 + 2 * p_a) / 4])
    assert witten_bell_bits_per_byte([b""], [b"abc"], order=3) == 8.0


@pytest.mark.parametrize("context", [b"", b"the c", b"zzzz", b"\xff", b"at "])
def test_the_next_byte_has_probability_one_in_all(context):
    model = WittenBell(documents(0, 60))
    last = [model.probabilities([context + bytes([byte])])[-1] for byte in range(256)]
    assert sum(last) == pytest.approx(1.0, abs=1e-12)
    assert min(last) > 0.0


def test_chunks_change_nothing(monkeypatch):
    train, val = documents(0, 60), documents(1, 20)
    whole = WittenBell(train).probabilities(val)
    monkeypatch.setattr(ngram, "CHUNK", 7)
    assert np.allclose(WittenBell(train).probabilities(val), whole, rtol=1e-12)


def test_an_order_that_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="order"):
        WittenBell([b"abc"], order=9)
