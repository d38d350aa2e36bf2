"""Syntax on sentences made by hand, indentation of lines made by hand."""

import pytest
import torch

from minitf.analysis.heads import sentences as of_words
from minitf.analysis.heads import syntax
from minitf.analysis.heads.indentation import indentation_links, with_indentation
from minitf.analysis.heads.measure import ACCURACY, MASS
from minitf.analysis.sites import sites
from minitf.data.tokenizer import CharTokenizer
from minitf.errors import DataError
from minitf.positions import packed
from minitf.tap import Tappable


class Pieces:
    """A tokenizer with given pieces; what it does not know is cut into bytes."""

    def __init__(self, *pieces):
        self.pieces = [bytes([b]) for b in range(256)] + [p.encode() for p in pieces]

    def encode(self, text):
        left, ids = text.encode(), []
        while left:
            i = max((i for i, p in enumerate(self.pieces) if left.startswith(p)), key=lambda i: len(self.pieces[i]))
            ids.append(i)
            left = left[len(self.pieces[i]) :]
        return ids

    def token_bytes(self, token_id):
        return self.pieces[token_id]


ENGLISH = of_words.sentence(["the", "cats", "sleep", "."], [1, 2, -1, 2], ["det", "nsubj", "root", "punct"])
CHINESE = of_words.sentence(["猫", "追", "球"], [1, -1, 1], ["nsubj", "root", "obj"], separator="")


def test_tokens_belong_to_words_by_their_bytes():
    tokenizer = Pieces("the", " cat", "s", " sleep", " .")
    shares = of_words.word_shares(ENGLISH, tokenizer.encode(ENGLISH.text), tokenizer)
    assert shares.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    tokenizer = Pieces("the ca", "ts ", "sleep.", "leep", " .")  # tokens of two words, and of a word and a space
    shares = of_words.word_shares(ENGLISH, tokenizer.encode(ENGLISH.text), tokenizer)
    torch.testing.assert_close(shares[:2], torch.tensor([[0.6, 0.4, 0, 0], [0, 1, 0, 0]]))
    assert shares[2].tolist() == [0, 0, 1, 0]  # "s"
    # characters of three bytes, each a token
    shares = of_words.word_shares(CHINESE, Pieces().encode(CHINESE.text), Pieces())
    assert shares.argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with pytest.raises(DataError, match="2 tokens have 2 bytes, the text 9"):
        of_words.word_shares(CHINESE, [0, 1], Pieces())


def test_attention_of_words_is_a_mean_from_and_a_sum_to():
    shares = torch.tensor([[0.0, 0], [1, 0], [1, 0], [0, 1]])  # a beginning, a word of two tokens, one of one
    weights = torch.tensor([[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.2, 0.6, 0], [0.1, 0.2, 0.3, 0.4]]])
    expected = torch.tensor([[[(0.5 + 0.8) / 2, 0], [0.5, 0.4]]])
    torch.testing.assert_close(of_words.word_attention(weights, shares), expected)


def test_gold_of_words_in_both_directions():
    gold = of_words.word_gold(ENGLISH, torch.ones(4, 4).bool())
    assert gold["head of all"].tolist() == [[1], [2], [-1], [2]]
    assert gold["head of nsubj"].tolist() == [[-1], [2], [-1], [-1]]
    assert gold["dependent by all"].tolist() == [[-1, -1], [0, -1], [1, 3], [-1, -1]]
    back = of_words.word_gold(ENGLISH, torch.ones(4, 4).tril().bool())  # a causal model
    assert back["head of all"].tolist() == [[-1], [-1], [-1], [2]]
    assert back["dependent by all"].tolist() == [[-1], [0], [1], [-1]]


def test_sentences_that_cannot_be_are_refused():
    for words, heads, relations in ((["a"], [0], ["x"]), (["a", "b"], [2, -1], "xy"), (["a", "b"], [-1], "xy")):
        with pytest.raises(DataError):
            of_words.sentence(words, heads, relations)
    with pytest.raises(DataError, match="one after another"):
        of_words.Sentence("ab", ((0, 2), (1, 2)), (-1, 0), ("x", "y"))


class Fixed(Tappable):
    """A model of one site whose heads read a fixed distance, the token itself, or at random."""

    tap_points = ("weights",)
    n_heads = 3

    def __init__(self, ahead):
        super().__init__()
        self.ahead = ahead
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.attention = None

    def forward(self, ids, pos=None):
        n = ids.size(1)
        near = torch.eye(n).roll(self.ahead, 1)
        weights = torch.stack([near, torch.eye(n) * 0.9 + near * 0.1, torch.rand(n, n).softmax(-1)])[None]
        if self.tap is not None:
            self.tap.keys(torch.arange(n)[None])
            self.tap("weights", weights)
        return ids


class Whole(torch.nn.Module):
    def __init__(self, ahead):
        super().__init__()
        self.attention = Fixed(ahead)

    def forward(self, ids, pos=None):
        return self.attention(ids)


def test_heads_follow_relations_and_the_word_itself_does_not_count():
    """Each character is a word, so that distances of tokens are those of words."""
    letters = CharTokenizer().train(["abcdef"])
    sentences = [
        of_words.sentence(
            list("abcdef"), [1, -1, 3, 1, 5, 1], ["det", "root", "det", "obj", "det", "obj"], separator=""
        ),
        of_words.sentence(list("abc"), [1, -1, 1], ["det", "root", "obj"], separator=""),
    ] * 8
    torch.manual_seed(0)
    model = Whole(1)  # reads the next token
    (site,) = sites(model)
    found = syntax.measure_syntax(model, sentences, letters, bos=letters.bos_id, n_shuffles=5)[site]
    of = found.scores
    # all determiners stand before their heads; of the objects none
    assert of[ACCURACY + "head of det"].tolist()[:2] == [1, 1]
    assert of[ACCURACY + "head of obj"].tolist()[:2] == [0, 0]
    assert of[ACCURACY + "head of all"].tolist()[:2] == [4 / 7, 4 / 7]
    torch.testing.assert_close(of[MASS + "head of det"][:2], torch.tensor([1, 0.1]).double())
    assert of[ACCURACY + "dependent by obj"][0] == 0.5  # "abc": b has its object behind it; "abcdef": none is near
    assert found.baselines["head of det"] == (-1, 1.0, 32)
    assert found.baselines["head of obj"] == (1, 1 / 3, 24)  # three distances, as often
    assert found.shuffled[ACCURACY + "head of all"].shape == (5, 3)
    # a fixed offset serves the relation, so nobody is named for it, however well it reads
    named = syntax.syntax_reports(model, sentences, letters, [Whole(-2)], bos=letters.bos_id, n_shuffles=5)
    assert [report.names for report in named] == [(), (), ()]
    assert named[0].untrained[ACCURACY + "head of det"] < 0.8
    with pytest.raises(DataError, match="nothing to measure"):
        syntax.measure_syntax(model, [], letters, bos=None)


class Telling(Fixed):
    """Each letter says how far its head is: a by 1, b by 2, ...; the head that reads it, one that does not."""

    def __init__(self, reads):
        super().__init__(0)
        self.reads = reads

    def forward(self, ids, pos=None):
        n = ids.size(1)
        column = torch.arange(n)
        at = (column + self.reads * (ids[0] + 1)).clamp(max=n - 1)
        weights = torch.nn.functional.one_hot(at, n)[None, None].float().expand(1, 3, n, n)
        if self.tap is not None:
            self.tap.keys(column[None])
            self.tap("weights", weights + 1e-6)
        return ids


def test_a_head_that_finds_the_word_is_named_by_the_relation():
    letters = CharTokenizer().train(["abcd"])
    torch.manual_seed(0)
    sentences = []
    for _ in range(30):
        far = torch.randint(1, 5, (6,)).tolist()
        heads = [own + k if own + k < 6 else -1 for own, k in enumerate(far)]
        sentences.append(of_words.sentence(["_abcd"[k] for k in far], heads, ["r"] * 6, separator=""))
    model, other = Whole(0), Whole(0)
    model.attention, other.attention = Telling(1), Telling(0)
    named = syntax.syntax_reports(model, sentences, letters, [other], bos=letters.bos_id)
    assert [name.name for name in named[0].names] == ["head of all", "head of r"]
    assert named[0].scores[ACCURACY + "head of r"] == 1
    _, share, n = named[0].baselines["head of r"]
    assert share < 0.6
    assert n > 60
    assert not syntax.syntax_reports(other, sentences, letters, [other], bos=letters.bos_id)[0].names


LINES = "def f(x):\n    a = 1\n\n    if a:\n        b\n    return b\nf(2)\n"


def test_lines_are_linked_to_the_line_before_that_is_indented_alike():
    characters = [c.encode() for c in LINES]
    links = indentation_links([b"", *characters])
    found = [(LINES[q - 1 :].split("\n")[0], LINES[s - 1 :].split("\n")[0]) for q, s in links]
    assert found == [("if a:", "a = 1"), ("return b", "if a:"), ("f(2)", "def f(x):")]
    # in the middle of a file the first line is only a piece of one
    assert [LINES[q:].split("\n")[0] for q, _ in indentation_links(characters)] == ["if a:", "return b"]
    # tokens that hold several lines' beginnings ask for themselves, which is no question
    assert indentation_links([b"", b"a\nb\n", b"c"]) == [(2, 1)]
    assert indentation_links([]) == []


def test_indentation_joins_the_gold_of_a_batch():
    tokenizer = CharTokenizer().train([LINES])
    one = [tokenizer.bos_id, *tokenizer.encode("a\nb\n f")]
    ids = torch.tensor([[*one, *one, 0]])
    batch = with_indentation({"ids": ids, "pos": packed([len(one)] * 2, 15)[None]}, tokenizer.token_bytes)
    assert batch["ids"] is ids
    indent, before = batch["gold.indent"][0, :, 0], batch["gold.next_indent"][0, :, 0]
    assert {i: int(j) for i, j in enumerate(indent) if j >= 0} == {3: 1, 10: 8}
    assert {i: int(j) for i, j in enumerate(before) if j >= 0} == {2: 1, 9: 8}
