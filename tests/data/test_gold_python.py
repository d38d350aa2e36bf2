"""Gold of Python source, by hand: what each token must read, in token texts."""

import io
import tokenize

import numpy as np
import pytest
import torch

from minitf.data.gold_python import python_links
from minitf.data.gold_tokens import PYTHON_ROLES, python_gold
from minitf.data.module import DataModule
from minitf.data.offsets import TokenSpans
from minitf.data.shakespeare import Shakespeare
from minitf.data.stdlib import PythonStdlib
from minitf.data.text import Documents
from minitf.data.tokenizer import BPETokenizer, CharTokenizer
from minitf.errors import ConfigError

CODE = '''\
@wrap(1)
def f(x, ys=[]):
    """Not (x."""
    def g():
        return x  # ys)
    return g() + f(ys[x])

class C:
    async def f(self): await f
'''


def texts(text, role):
    """Links of a role as (query, source, line of the source counted from 1)."""
    found = []
    for link in python_links(text):
        if link.role == role:
            line = text[: link.source[0]].count("\n") + 1
            found.append((text[slice(*link.query)], text[slice(*link.source)], line))
    return found


def test_brackets_match_outside_of_strings_and_comments():
    assert " ".join(s + q for q, s, _ in texts(CODE, "bracket")) == "() [] () () () [] () ()"
    nested = sorted(python_links("a = {(1, [2]): (3)}\n"))
    assert [link.source[0] for link in nested] == [9, 5, 15, 4]  # closed at 11, 12, 17, 18
    assert [link.query[0] for link in nested] == [11, 12, 17, 18]


def test_names_lead_to_where_they_stood_last():
    assert " ".join(f"{q}:{line}" for q, _, line in texts(CODE, "identifier")) == "x:2 g:4 f:2 ys:2 x:5 f:6 f:9"
    # none of the docstring and the comment, and no keyword


def test_functions_and_classes_reach_from_their_keyword_to_their_end():
    functions = texts(CODE, "def")
    assert [line for _, _, line in functions] == [2, 4, 9]
    assert functions[0][0].startswith(" f(x, ys=[]):\n")
    assert functions[0][0].endswith("f(ys[x])")
    assert functions[1][0] == " g():\n        return x"
    assert functions[2][0] == " f(self): await f"  # `async` stands before the keyword
    assert [(q[:3], s, line) for q, s, line in texts(CODE, "class")] == [(" C:", "class", 8)]


def test_columns_are_characters_also_after_wide_ones():
    text = 'é = "猫🙂"; def_ = (é)\ndef 猫(): return "🙂"; 猫\n'
    assert [(q, s) for q, s, _ in texts(text, "identifier")] == [("é", "é"), ("猫", "猫")]
    assert texts(text, "def") == [(' 猫(): return "🙂"; 猫', "def", 2)]


def test_f_strings_have_no_gold_inside():
    text = 'x = 1\ny = f"{x} {(x)}" + x\nz = f"{f(x)!r:>{x}}", (x)\n'
    assert len(texts(text, "identifier")) == 2
    assert len(texts(text, "bracket")) == 1


@pytest.mark.parametrize(
    "text", ["def f(:\n", "x = (1\n", "a\rb\n", "if x:\npass\n", "x = '\0'\n", "(" * 5000 + ")" * 5000]
)
def test_what_is_no_python_is_not_known(text):
    assert python_links(text) is None
    assert python_gold(text, [], CharTokenizer()) is None


class Pieces:
    """A tokenizer whose tokens are written down."""

    def __init__(self, *pieces):
        self.pieces = [p if isinstance(p, bytes) else p.encode() for p in pieces]
        self.text = b"".join(self.pieces).decode()
        self.ids = list(range(len(pieces)))

    def token_bytes(self, i):
        return self.pieces[i]

    def gold(self, role):
        """{text of the asking token, with its number: numbers of those that answer}."""
        found = {}
        for query, source in python_gold(self.text, self.ids, self)[role].tolist():
            found.setdefault((query, self.pieces[query].decode() if query >= 0 else "bos"), []).append(source)
        return found


def test_tokens_of_a_snippet():
    made = Pieces(
        "def", " get", "_", "it", "(self", ",", " n", "):", "\n   ", " return", " self", ".items", "[n", "]", "\n"
    )
    # 0: def, 4: (self, 6: n, 7: ):, 10: self, 12: [n
    assert made.gold("bracket") == {(7, "):"): [4], (13, "]"): [12]}
    assert made.gold("next_bracket") == {(6, " n"): [4], (12, "[n"): [12]}
    assert made.gold("identifier") == {(10, " self"): [4], (12, "[n"): [6]}
    assert made.gold("next_identifier") == {(9, " return"): [4], (11, ".items"): [6]}
    assert made.gold("after_identifier") == {(10, " self"): [5], (12, "[n"): [7]}
    assert made.gold("def") == {(i, made.pieces[i].decode()): [0] for i in range(1, 14)}
    assert made.gold("class") == {}


def test_tokens_that_hold_several_things_or_parts():
    made = Pieces("f", "(", "(", "a_", "b", ",", "()", ",", " a_b", "))", "\n", "a", "_b.", "c", ";", "a_b.", "c", "\n")
    # 3: a_, 8: a_b, 11: a, 12: _b., 15: a_b.
    assert made.gold("bracket") == {(9, "))"): [1, 2]}  # "()" has its answer inside of itself
    assert made.gold("next_bracket") == {(8, " a_b"): [1, 2]}
    assert made.gold("identifier") == {
        (8, " a_b"): [3, 4],
        (12, "_b."): [8],
        (15, "a_b."): [11, 12],
        (16, "c"): [13],
    }
    assert made.gold("next_identifier") == {(7, ","): [3], (10, "\n"): [8], (14, ";"): [11], (15, "a_b."): [13]}
    # the names end inside of "_b." and "a_b.": what comes next has been read with them
    assert made.gold("after_identifier") == {(8, " a_b"): [5], (16, "c"): [14]}
    assert Pieces("a", "=", "a").gold("next_identifier") == {(1, "="): [0]}


def test_innermost_keyword_counts():
    made = Pieces("class", " C", ":\n", " def", " f():\n", "  def", " g(): 1\n", "  x", "\n", " y=1\n")
    assert made.gold("def") == {(4, " f():\n"): [3], (5, "  def"): [3], (6, " g(): 1\n"): [5], (7, "  x"): [3]}
    assert {query for query, _ in made.gold("class")} == {1, 2, 3, 4, 5, 6, 7, 8, 9}
    assert set(map(tuple, made.gold("class").values())) == {(0,)}


def test_a_part_of_a_character_counts_as_the_character():
    text = "猫=猫"
    ids = Pieces(b"\xe7\x8c", b"\xab", "=", b"\xe7", b"\x8c\xab")
    spans = TokenSpans(text, ids.ids, ids)
    assert spans.starts.tolist() == [0, 0, 1, 2, 2]
    assert spans.ends.tolist() == [1, 1, 2, 3, 3]
    assert [spans.of(i, i + 1) for i in range(3)] == [(0, 2), (2, 3), (3, 5)]
    gold = python_gold(text, ids.ids, ids)
    assert gold["identifier"].tolist() == [[4, 0], [4, 1]]
    assert gold["next_identifier"].tolist() == [[2, 0]]
    assert gold["after_identifier"].tolist() == [[4, 2]]
    with pytest.raises(ValueError, match="4 tokens do not have the 7 bytes"):
        TokenSpans(text, ids.ids[:4], ids)


class Given:
    name = "given"
    roles = PYTHON_ROLES
    token_gold = staticmethod(python_gold)

    def documents(self):
        val = [CODE, "", "x = (\n", "def h(x): return (x)\n" * 3, CODE.replace("ys", "longer_name")]
        return Documents([CODE * 20 + "longer_name h"], val, {"source": self.name}, [str(i) for i in range(len(val))])


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))

    def make(rows, tokenizer=None, seq_len=32, **more):
        return DataModule(Given(), tokenizer or BPETokenizer(270), seq_len, 4, 0, rows=rows, **more).prepare(
            lines.append
        )

    lines = make.lines = []
    return make


def pairs(data):
    """(role, asking, answering) of all batches, as places of the text."""
    found = set()
    batches = data.val_batches()
    for i, batch in enumerate(batches):
        places = batches.batches.places(i)
        for role in data.roles:
            gold = batch[f"gold.{role}"]
            assert gold.shape[:2] == places.shape
            assert gold.dtype == torch.int64
            assert int(gold.min()) >= -1
            assert ((gold[..., 1:] >= 0) <= (gold[..., :-1] >= 0)).all()  # -1 stands last
            for r, t, k in torch.nonzero(gold >= 0).tolist():
                column = int(gold[r, t, k])
                assert column <= t
                if "pos" in batch:
                    assert batch["pos"][r, column] >> 32 == batch["pos"][r, t] >> 32
                found.add((role, int(places[r, t]), int(places[r, column])))
    return found


@pytest.mark.parametrize("seq_len", [7, 32, 500])
def test_gold_of_batches_is_what_stands_in_the_same_row(made, seq_len):
    stream = made("stream", seq_len=seq_len, gold=True) if seq_len < 400 else None
    packed, padded = (made(rows, seq_len=seq_len, gold=True) for rows in ("packed", "padded"))
    begins = np.flatnonzero(packed._val_ids == packed.tokenizer.bos_id)
    everything = set()
    for text, begin, end in zip(
        filter(None, packed.val_texts), begins, [*begins[1:], packed.n_val_tokens], strict=True
    ):
        gold = python_gold(text, packed._val_ids[begin + 1 : end].tolist(), packed.tokenizer) or {}
        everything |= {(role, begin + 1 + q, begin + 1 + s) for role, found in gold.items() for q, s in found.tolist()}
    assert {role for role, _, _ in everything} == set(PYTHON_ROLES)

    def piece(place):
        begin = begins[begins <= place].max()
        return begin, (place - begin) // seq_len

    assert pairs(padded) == pairs(packed) == {p for p in everything if piece(p[1]) == piece(p[2])}
    if stream is not None:
        in_row = {p for p in everything if p[1] // seq_len == p[2] // seq_len and p[1] < stream.n_val_tokens - 1}
        assert pairs(stream) == in_row


def test_the_split_tells_how_much_of_it_has_gold(made):
    data = made("padded", CharTokenizer(), gold=True)
    assert data.record["gold"]["documents_without"] == 1  # of four that are not empty
    found = pairs(data)
    for role, share in data.record["gold"]["share_of_val_tokens"].items():
        assert abs(share - len({q for r, q, _ in found if r == role}) / data.n_val_tokens) < 1e-4
    assert "documents that could not be read: 1" in " ".join(made.lines)


def test_training_has_no_gold_and_nothing_is_read_without_being_asked(made, monkeypatch):
    plain = made("stream")
    assert plain.roles == ()
    assert set(plain.val_batches()[0]) == {"ids", "targets"}
    monkeypatch.setattr(Given, "token_gold", None)
    assert "gold" not in made("stream").record
    monkeypatch.undo()
    assert set(plain.train_batch(0)) == {"ids", "targets", "n_scored"}


def test_a_source_without_gold_is_refused():
    with pytest.raises(ConfigError, match=r"data\.gold=true: shakespeare .* data=python_stdlib does"):
        DataModule(Shakespeare(), CharTokenizer(), 8, 4, 0, gold=True)


def test_the_library_itself():
    documents = PythonStdlib().documents()
    tokenizer = BPETokenizer(400).train(documents.val[:3])
    for text in documents.val[:6]:
        gold = python_gold(text, tokenizer.encode(text), tokenizer)
        names = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.NAME]
        links = python_links(text)
        assert {text[slice(*link.query)] for link in links if link.role == "identifier"} <= set(names)
        for link in links:
            source = text[slice(*link.source)]
            if link.role == "identifier":
                assert source == text[slice(*link.query)]
            else:
                assert source in ("(", "[", "{", "def", "class")
        for role, found in gold.items():
            assert (found[:, 1] < found[:, 0] + role.startswith("next_")).all()
