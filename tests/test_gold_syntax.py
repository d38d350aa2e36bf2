"""The gold syntax that other tests measure against is what it should be: trees over sentences in two languages."""

import gold_syntax
import pytest
from gold_syntax import COLUMNS, NAME, Sentence


@pytest.fixture(scope="module")
def gold():
    return gold_syntax.gold()


def test_every_sentence_is_a_tree(gold):
    assert set(gold) == {"en", "zh"}
    for sentences in gold.values():
        assert len(sentences) == 60
        for sentence in sentences:
            n = len(sentence.tokens)
            assert 5 <= n <= 22
            assert len(sentence.heads) == len(sentence.relations) == len(sentence.tags) == n
            (root,) = [i for i, head in enumerate(sentence.heads) if head is None]
            assert [i for i, relation in enumerate(sentence.relations) if relation == "root"] == [root]
            for place in range(n):
                for _ in range(n):  # no cycle: every word comes to the root
                    if place != root:
                        place = sentence.heads[place]
                        assert 0 <= place < n
                assert place == root


def test_both_languages_say_the_same_sentences_in_one_order(gold):
    assert [s.name for s in gold["en"]] == [s.name for s in gold["zh"]]


def test_words_by_hand(gold):
    english, chinese = gold["en"][0], gold["zh"][0]
    assert " ".join(english.tokens[:8]) == "For those who follow social media transitions on"
    heads = dict(zip(english.tokens, english.heads, strict=True))
    assert english.tokens[heads["follow"]] == "those"  # a relative clause
    assert english.tokens[heads["social"]] == "media"
    assert english.relations[english.tokens.index("transitions")] == "obj"
    assert heads["different"] is None
    heads = dict(zip(chinese.tokens, chinese.heads, strict=True))
    assert chinese.tokens[heads["任職"]] == "變遷"
    assert chinese.tokens[heads["變遷"]] == "跟踪"
    assert chinese.tags[chinese.tokens.index("跟踪")] == "VERB"


@pytest.mark.parametrize(("offset", "share"), [(1, 0.315), (2, 0.150), (-1, 0.079)])
def test_how_far_a_fixed_offset_gets_in_english(gold, offset, share):
    pairs = [(i, head) for s in gold["en"] for i, head in enumerate(s.heads) if head is not None]
    assert len(pairs) == 858
    assert sum(head == i + offset for i, head in pairs) / len(pairs) == pytest.approx(share, abs=0.0005)


HEAD = "# " + "\t".join(COLUMNS)
LINES = ["a\ten\t1\tcats\tNOUN\t2\tnsubj", "a\ten\t2\tsleep\tVERB\t0\troot", "a\tzh\t1\t猫睡\tVERB\t0\troot"]


def test_the_reader(tmp_path, monkeypatch):
    path = tmp_path / NAME
    path.write_text("\n".join([HEAD, *LINES]), encoding="utf-8")
    monkeypatch.setenv("MINITF_SHARED_DATA", str(tmp_path))
    assert gold_syntax.gold()["en"] == [
        Sentence("a", ["cats", "sleep"], ["NOUN", "VERB"], [1, None], ["nsubj", "root"])
    ]
    path.write_text("\n".join([HEAD, LINES[1]]), encoding="utf-8")
    with pytest.raises(ValueError, match="word 2 of a"):
        gold_syntax.gold()
    path.write_text("# other columns\n", encoding="utf-8")
    with pytest.raises(ValueError, match="other columns"):
        gold_syntax.gold()
    path.unlink()
    with pytest.raises(pytest.skip.Exception, match=NAME):
        gold_syntax.gold()
