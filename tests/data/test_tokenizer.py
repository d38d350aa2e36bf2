import random

import pytest

from minitf.data.pieces import pieces
from minitf.data.tokenizer import BPETokenizer, CharTokenizer, load_tokenizer
from minitf.errors import ConfigError, DataError

TEXTS = [
    "hello",
    " hello",
    "",
    "\n",
    "  two  spaces  ",
    "\r\n\ttabs and line ends\r\n",
    "介绍一下你。",
    "e\u0301 é ñ ß \U0001f600\U0001f468\u200d\U0001f469",
    "<|endoftext|> <bos> <s> [PAD] </s>",
    "\x00\x1c\x85\u2028 odd white space \ufeff\ufffd",
    "don't we'll I'd 's't",
]


@pytest.fixture(scope="module", params=["char", "bpe"])
def tokenizer(request):
    recipe = CharTokenizer() if request.param == "char" else BPETokenizer(vocab_size=300)
    return recipe.train(TEXTS)


def test_every_text_round_trips(tokenizer):
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    done = []
    encoded = tokenizer.encode_batch(TEXTS, done.append)
    assert [ids.tolist() for ids in encoded] == [tokenizer.encode(text) for text in TEXTS]
    assert sum(done) == sum(map(len, TEXTS))


def test_bpe_writes_text_it_never_met():
    tokenizer = BPETokenizer(vocab_size=300).train(["only plain letters"])
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bos_is_the_last_id_and_no_text_contains_it(tokenizer):
    assert tokenizer.bos_id == tokenizer.eos_id == tokenizer.vocab_size - 1
    assert (tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id) == (None, None, None)
    assert all(tokenizer.bos_id not in tokenizer.encode(text) for text in TEXTS)
    ids = tokenizer.encode("hello")
    assert tokenizer.decode([tokenizer.bos_id, *ids, tokenizer.bos_id]) == "hello"


def test_vocab_size_counts_everything():
    assert CharTokenizer().train(["abca", "d"]).vocab_size == 5
    text = " ".join(str(n) for n in range(3000))
    assert BPETokenizer(vocab_size=400).train([text]).vocab_size == 400
    assert BPETokenizer(vocab_size=400).train(["ab ab"]).vocab_size < 400  # there is no more to merge
    assert BPETokenizer(vocab_size=257).train([text]).vocab_size == 257
    with pytest.raises(ConfigError, match="256"):
        BPETokenizer(vocab_size=256)


def test_training_twice_gives_the_same_ids():
    text = " ".join(str(n * n) for n in range(2000))
    first, second = (BPETokenizer(vocab_size=500).train([text]) for _ in range(2))
    assert [first.token_bytes(i) for i in range(500)] == [second.token_bytes(i) for i in range(500)]


def test_a_long_text_is_cut_only_where_no_token_crosses():
    lines = ["x = 1", "", "   indented", "trailing  ", "\t", "don't", "介绍", "a\u2028b", "\x1c", "==", "😀 é"]
    chooser = random.Random(0)
    text = "".join(chooser.choice(lines) + chooser.choice(["\n", "\n\n", "\r\n", " \n"]) for _ in range(3000))
    tokenizer = BPETokenizer(vocab_size=600).train([text])
    cut = list(pieces(text, size=40))
    assert len(cut) > 100
    assert "".join(piece for piece, _ in cut) == text
    assert [is_last for _, is_last in cut] == [False] * (len(cut) - 1) + [True]
    joined = [i for piece, _ in cut for i in tokenizer._core.encode(piece).ids]
    assert joined == tokenizer._core.encode(text).ids == tokenizer.encode(text)


def test_unknown_characters_are_named_with_a_way_out():
    tokenizer = CharTokenizer().train(["First Citizen:\n"])
    with pytest.raises(DataError, match=r"'好' \(U\+597D\).*data/tokenizer=bpe") as error:
        tokenizer.encode("First 你好 \x00")
    assert "'\\x00' (U+0000)" in str(error.value)
    assert "'你' (U+4F60)" in str(error.value)
    with pytest.raises(DataError, match=r"U\+0000"):
        CharTokenizer().train([]).encode("\x00")


def test_a_lone_surrogate_is_refused(tokenizer):
    with pytest.raises(DataError, match=r"U\+DC92 at character 5"):
        tokenizer.encode("hello\udc92")
    with pytest.raises(DataError, match="surrogate"):
        type(tokenizer)().train(["\ud83d"])


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_an_unknown_id_is_named(tokenizer, wrong):
    with pytest.raises(DataError, match=f"token id {wrong} does not exist"):
        tokenizer.decode([0, wrong])


def test_saved_and_loaded_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    tokenizer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    loaded = load_tokenizer(tmp_path)
    assert type(loaded) is type(tokenizer)
    assert (loaded.settings, loaded.vocab_size) == (tokenizer.settings, tokenizer.vocab_size)
    for text in TEXTS:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("content", ["", "{", '{"settings": {"type": "pickle"}}', '{"settings": {"type": "bpe"}}'])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
