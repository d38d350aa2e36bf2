import random

import pytest

from minitf.data.tokenizer import BPETokenizer, CharTokenizer
from minitf.errors import ConfigError
from minitf.generation.text import TextStream

TEXT = "aaab aab 介绍一下你。 👩‍🚀 naïve – abab ab a\n\nüber 你好 aab"
LETTERS = "aab你👩.é"


class Bytes:
    """A tokenizer whose ids are pieces of bytes, cut anywhere."""

    def __init__(self, pieces):
        self.pieces = pieces

    def token_bytes(self, token_id):
        return self.pieces[token_id]


def streamed(pieces, stops):
    stream = TextStream(Bytes(pieces), stops)
    out = [stream.push(i) for i in range(len(pieces))]
    return [*out, stream.flush()], stream


def cut(text, stops):
    """By definition: read on until a stop string is complete, and leave out the longest one that is."""
    for n in range(1, len(text) + 1):
        if complete := [s for s in stops if text[:n].endswith(s)]:
            longest = max(complete, key=len)
            return text[: n - len(longest)], longest
    return text, None


def some_pieces(rng, data):
    ends = [*sorted(rng.sample(range(len(data) + 1), rng.randint(0, len(data)))), len(data)]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def test_what_comes_out_is_the_text_before_the_first_stop_string():
    rng, n_stopped = random.Random(0), 0
    for _ in range(2000):
        text = "".join(rng.choices(LETTERS, k=rng.randint(0, 12)))
        stops = ["".join(rng.choices(LETTERS, k=rng.randint(1, 4))) for _ in range(rng.randint(0, 3))]
        out, stream = streamed(some_pieces(rng, text.encode()), stops)
        assert ("".join(out), stream.stopped) == cut(text, stops), (text, stops)
        n_stopped += stream.stopped is not None
    assert 300 < n_stopped < 1700


@pytest.mark.parametrize("tokenizer", [CharTokenizer(), BPETokenizer(300)])
def test_without_a_stop_string_the_pieces_are_the_whole_text(tokenizer):
    tokenizer = tokenizer.train([TEXT])
    for stops in ((), ("never", "你你", "ab a ")):
        ids = [tokenizer.bos_id, *tokenizer.encode(TEXT), tokenizer.bos_id]
        for end in range(len(ids) + 1):
            stream = TextStream(tokenizer, stops)
            out = [*(stream.push(i) for i in ids[:end]), stream.flush()]
            assert "".join(out) == tokenizer.decode(ids[:end])
            assert not stream.stopped
            assert stream.flush() == ""  # the rest comes out once
            assert "\ufffd" not in "".join(out[:-1])


@pytest.mark.parametrize(
    ("pieces", "stops", "expected", "stopped"),
    [
        (["a", "a", "a", "b", "c"], ["aab"], ["", "", "a", "", "", ""], "aab"),  # overlaps itself
        (["a", "a", "a", "c"], ["aab"], ["", "", "a", "aac", ""], None),
        (["xSt", "op", "!Sto"], ["Stop!"], ["x", "", "", ""], "Stop!"),  # begins inside a token, spans three
        (["xS", "top y"], ["Stop"], ["x", "", ""], "Stop"),
        (["one Stop two Stop"], ["Stop"], ["one ", ""], "Stop"),
        (["ab", "cd"], ["abcd", "bc"], ["", "a", ""], "bc"),  # that which is complete first
        (["xabc"], ["bc", "abc"], ["x", ""], "abc"),  # both at once: the longest
        (["end Sto"], ["Stop"], ["end ", "Sto"], None),  # what was held back comes out at the end
    ],
)
def test_when_text_comes_out(pieces, stops, expected, stopped):
    out, stream = streamed([p.encode() for p in pieces], stops)
    assert (out, stream.stopped) == (expected, stopped)


def test_a_broken_character_can_complete_a_stop_string():
    out, stream = streamed([b"a!", "é".encode()[:1]], ["!\ufffd"])
    assert (out, stream.stopped) == (["a", "", ""], "!\ufffd")
    assert stream.push(0) == stream.flush() == ""


@pytest.mark.parametrize("stops", [[""], ["a", ""], "stop", [3]])
def test_what_is_no_list_of_texts_is_refused(stops):
    with pytest.raises(ConfigError, match="stop strings must be a list of texts"):
        TextStream(Bytes([]), stops)


def test_streaming_bytes_of_an_emoji():
    tokenizer = BPETokenizer(vocab_size=257).train(["x"])  # one id per byte
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("é😀")
    assert [stream.push(i) for i in ids] == ["", "é", "", "", "", "😀"]
    assert [stream.push(i) for i in ids[:4]] == ["", "é", "", ""]
    assert stream.flush() == "\ufffd" == tokenizer.decode(ids[2:4])
    assert stream.flush() == ""


def test_streamed_pieces_join_to_decode_for_any_ids():
    tokenizer = BPETokenizer(vocab_size=300).train([TEXT])
    rng = random.Random(0)
    for _ in range(200):
        ids = rng.choices(range(tokenizer.vocab_size), k=30)
        stream = TextStream(tokenizer)
        assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids)
