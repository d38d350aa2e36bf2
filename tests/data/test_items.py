"""Data sets of items: disjoint splits, batches that depend on seed and step only, and what a run keeps of them."""

import io
import json
import struct
import zipfile

import pytest
import torch

from minitf.data.items import Item, ItemSource, Split, g2p_cmudict, langid, pinyin
from minitf.data.items.dates import Dates
from minitf.data.items.g2p_cmudict import G2PCmudict, pronunciations
from minitf.data.items.langid import LangId, catalogue, divided
from minitf.data.items.module import ItemData
from minitf.data.items.pinyin import Pinyin, neighbours, no_context, singles
from minitf.data.wheel import Wheel
from minitf.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def mo(messages):
    """A compiled catalogue."""
    pairs = [(k.encode(), v.encode()) for k, v in messages.items()]
    n, start = len(pairs), 28
    body, tables = b"", [b"", b""]
    for column in (0, 1):
        for pair in pairs:
            tables[column] += struct.pack("<2I", len(pair[column]), start + 16 * n + len(body))
            body += pair[column] + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, n, start, start + 8 * n, 0, 0) + b"".join(tables) + body


def catalogues():
    """For each language sixty messages, which share no text."""
    found = {}
    for language in langid.LANGUAGES:
        if language != "en":
            messages = {
                f"Message number {i} of <b>all</b>": f"{language} {language}: %(n)s text {i}" for i in range(60)
            }
            found[f"django/conf/locale/{language}/LC_MESSAGES/django.mo"] = mo(messages)
    return found


PHRASES = {
    a + b: [["yī" if a == "一" else "bù"], [s]]
    for a in "一不"
    for b, s in zip("人口手天地日月山水火", "abcdefghij", strict=True)
}
LETTERS = "abcdefgh"
LINES = [
    f"{a}{b} {a.upper()} {b.upper()}1 # a remark\n{a}{b}(2) {b.upper()}0 {a.upper()}" for a in LETTERS for b in LETTERS
]
FILES = {
    "pinyin": lambda: {
        "pypinyin/phrases_dict.json": json.dumps({**PHRASES, "朝阳": [["zhāo", "cháo"], ["yáng"]]}),
        "pypinyin/pinyin_dict.json": json.dumps({str(ord("猫")): "māo,máo"}),
    },
    "g2p_cmudict": lambda: {"cmudict/data/cmudict.dict": "\n".join(LINES)},
    "langid": catalogues,
}
SOURCES = {
    "dates": lambda: Dates(n_train=200, n_val=60),
    "pinyin": lambda: Pinyin(val_one_in=3),
    "g2p_cmudict": lambda: G2PCmudict(val_one_in=4),
    "langid": lambda: LangId(val_one_in=4),
}


@pytest.fixture
def stand_ins(monkeypatch):
    """Packages of the same layout as the real ones, and how often they were read."""
    reads = []

    def content(wheel):
        name = wheel.wanted_by.removeprefix("data=")
        reads.append(name)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path, text in FILES[name]().items():
                archive.writestr(path, text)
        return file.getvalue()

    monkeypatch.setattr(Wheel, "content", content)
    return reads


def made(name, seq_len=48, batch_size=8, seed=0, **more):
    return ItemData(SOURCES[name](), seq_len, batch_size, seed, **more).prepare(lambda line: None)


def sources_of(data, batches):
    question = "src" if data.gives == "seq2seq" else "ids"
    pos = "src_pos" if data.gives == "seq2seq" else "pos"
    return [
        "".join(data.src_symbols(r[p >= 0].tolist())) for b in batches for r, p in zip(b[question], b[pos], strict=True)
    ]


@pytest.mark.parametrize("name", SOURCES)
def test_splits_share_no_source_and_an_epoch_reads_every_row_once(name, stand_ins):
    data = made(name, batch_size=1)
    n = data.record["train_rows"]
    train = sources_of(data, [data.train_batch(step) for step in range(n)])
    again = sources_of(data, [data.train_batch(step) for step in range(n, 2 * n)])
    val = sources_of(data, data.val_batches())
    assert sorted(train) == sorted(again)
    assert train != again
    assert len(val) == data.record["val_rows"] == len(data.references())
    # what only validation has in it cannot be read, and is one unknown symbol
    assert not {v for v in val if "[unk]" not in v} & set(train)
    if name == "dates":
        dates = [
            {tuple(t.tolist()) for b in batches for t in b["targets"]}
            for batches in (data.val_batches(), [data.train_batch(s) for s in range(n)])
        ]
        assert not dates[0] & dates[1]


@pytest.mark.parametrize("name", SOURCES)
def test_a_batch_is_a_function_of_seed_and_step_and_its_parts_are_the_whole(name, stand_ins):
    data, again, other = made(name), made(name), made(name, seed=1)
    whole = data.train_batch(9)
    parts = [again.train_batch(9, micro, 4) for micro in range(4)]
    for key, value in whole.items():
        if key == "n_scored":
            assert {part[key] for part in parts} == {value}
        else:
            assert value.dtype == torch.int64
            assert torch.equal(torch.cat([part[key] for part in parts]), value)
    if "targets" in whole:
        assert whole["n_scored"] == (whole["targets"] != -100).sum()
        assert ((whole["targets"] != -100) == (whole["pos"] >= 0)).all()
    assert sources_of(data, [whole]) != sources_of(other, [other.train_batch(9)])


@pytest.mark.parametrize("name", SOURCES)
def test_processes_share_the_validation_rows(name, stand_ins):
    data = made(name, batch_size=12)
    shares = []
    for rank in range(3):
        data.plan(1, 1, rank, 3)
        shares.append(list(data.val_batches()))
    assert len({len(share) for share in shares}) == 1
    rows = torch.cat([batch["row"] for share in shares for batch in share])
    assert sorted(rows[rows >= 0].tolist()) == list(range(data.record["val_rows"]))


@pytest.mark.parametrize("name", SOURCES)
def test_the_second_start_reads_the_cache_and_a_damaged_one_is_made_anew(name, stand_ins, cache):
    first = made(name)
    stand_ins.clear()
    second = made(name)
    assert stand_ins == []
    assert (first.record, first.baselines(), first.facts) == (second.record, second.baselines(), second.facts)
    assert {"licence", "sha256", "split"} <= set(first.record)
    (path,) = (cache / "items").glob("*.npz")
    path.write_bytes(path.read_bytes()[:-9])
    assert made(name).record == first.record
    assert stand_ins == ([] if name == "dates" else [name])


def test_a_run_keeps_what_the_ids_mean(tmp_path, stand_ins):
    data = made("pinyin")
    data.save(tmp_path)
    data.check_saved(tmp_path)
    with pytest.raises(DataError, match="start a new run"):
        made("g2p_cmudict").check_saved(tmp_path)
    (tmp_path / "symbols.json").unlink()
    with pytest.raises(DataError, match="start a new run"):
        data.check_saved(tmp_path)


class Two(ItemSource):
    """Two rows to train on and one to check, by hand."""

    name, gives, roles = "two", "seq2seq", ("letter",)

    def depends_on(self):
        return {}

    def split(self, progress):
        train = [Item("ab", ["B"], {"letter": [[1]]}), Item("c", ["C", "A"], {"letter": [[0], []]})]
        return Split(train, [Item("bz", ["A"], {"letter": [[0, 1]]}, others=[["B", "C"]])], {}, {})


def test_rows_by_hand():
    data = ItemData(Two(), 4, 2, 0).prepare(lambda line: None)
    assert data.symbols(range(8)) == ["[end]", "[unk]", "A", "B", "C", "a", "b", "c"]
    batch = data.train_batch(0)
    order = [0, 1] if batch["src"][0].tolist() == [5, 6] else [1, 0]
    assert batch["src"][order].tolist() == [[5, 6], [7, 0]]
    assert batch["src_pos"][order].tolist() == [[0, 1], [0, -1]]
    assert batch["ids"][order].tolist() == [[0, 3, 0], [0, 4, 2]]
    assert batch["pos"][order].tolist() == [[0, 1, -1], [0, 1, 2]]
    assert batch["targets"][order].tolist() == [[3, 0, -100], [4, 2, 0]]
    assert batch["gold.letter"][order].tolist() == [[[1], [-1], [-1]], [[0], [-1], [-1]]]
    (val,) = data.val_batches()
    assert val["src"].tolist() == [[6, 1]]
    assert val["gold.letter"].tolist() == [[[0, 1], [-1, -1]]]
    assert data.references() == [[[2], [3, 4]]]
    with pytest.raises(DataError, match=r"use data\.seq_len=3"):
        ItemData(Two(), 2, 2, 0).prepare(lambda line: None)


def test_longer_texts_are_cut_to_be_classified(stand_ins):
    batch = made("langid", seq_len=7).train_batch(0)
    assert batch["ids"].shape == (8, 7)


def test_pronunciations_by_hand():
    lines = ["read R EH1 D", "read(2) R IY1 D", "read(3) R IY0 D # again", "a. EY1", "'em AH0 M", "x-ray EH1 K S"]
    assert pronunciations(lines, stress=False) == {"read": [["R", "EH", "D"], ["R", "IY", "D"]], "'em": [["AH", "M"]]}
    assert pronunciations(lines, stress=True)["read"][2] == ["R", "IY0", "D"]


def test_any_pronunciation_of_a_word_is_a_reference(stand_ins):
    data = made("g2p_cmudict")
    words = sources_of(data, data.val_batches())
    for word, right in zip(words, data.references(), strict=True):
        wanted = {tuple(word.upper()), tuple(reversed(word.upper()))}
        assert {tuple(data.answer_symbols(answer)) for answer in right} == wanted


def test_the_ceiling_without_context_by_hand():
    train = [Item("行人", ["xíng", "rén"]), Item("行走", ["xíng", "zǒu"]), Item("银行", ["yín", "háng"])]
    val = [Item("行猫", ["xíng", "māo"]), Item("人行", ["rén", "háng"])]
    found = no_context(train, val, {"猫": "māo", "行": "háng"})
    assert list(found.values()) == [2 / 4, 0, 3 / 4, 1 / 2]


def test_the_neighbours_by_hand():
    train = [Item("行人", ["xíng", "rén"]), Item("银行", ["yín", "háng"]), Item("行", ["xíng"]), Item("行", ["xíng"])]
    val = [
        Item("银行人", ["yín", "háng", "rén"]),
        Item("银行", ["yín", "háng"]),
        Item("行行猫", ["xíng", "xíng", "māo"]),
    ]
    # between two new neighbours the one behind decides, then the one before, then neither; 猫 is new
    assert list(neighbours(train, val).values()) == [(2 + 2 + 2) / 8, 1 / 3]


def test_every_character_of_the_phrases_is_read_once_by_itself_in_training(stand_ins, monkeypatch):
    dictionary = {"一": "yī", "不": "fǒu", "猫": "māo", "人": "a"}
    monkeypatch.setitem(FILES, "pinyin", lambda: files(dictionary))
    split = Pinyin(val_one_in=3).split(print)
    # 猫 is in no phrase, and no phrase has the syllable fǒu
    assert [(i.source, i.answer) for i in split.train if len(i.source) == 1] == [(["一"], ["yī"]), (["人"], ["a"])]
    assert all(len(item.source) > 1 for item in split.val)
    assert split.record["single_characters_in_training"] == 2
    assert all(len(item.source) > 1 for item in Pinyin(val_one_in=3, characters=False).split(print).train)
    assert [i.source for i in singles([Item("人一", ["a", "yī"])], dictionary)] == [["一"], ["人"]]


def files(dictionary):
    listed = {str(ord(character)): f"{syllable},x" for character, syllable in dictionary.items()}
    phrases, characters = "pypinyin/phrases_dict.json", "pypinyin/pinyin_dict.json"
    return {phrases: json.dumps(PHRASES), characters: json.dumps(listed)}


def test_a_pool_makes_batches_of_like_length_and_an_epoch_still_reads_every_row_once(stand_ins):
    apart, pooled = made("g2p_cmudict"), made("g2p_cmudict", pool=4)
    n = apart.record["train_rows"]
    steps = range(3 * n // 8 + 1)
    rows = [sources_of(data, [data.train_batch(step) for step in steps]) for data in (apart, pooled)]
    for epoch in range(3):
        assert sorted(rows[0][epoch * n : epoch * n + n]) == sorted(rows[1][epoch * n : epoch * n + n])
    assert rows[1][:n] != rows[1][n : 2 * n]
    assert torch.equal(made("g2p_cmudict", pool=4).train_batch(n)["src"], pooled.train_batch(n)["src"])


class Lengths(ItemSource):
    """Rows of 1 to 8 symbols."""

    name, gives = "lengths", "tag"

    def depends_on(self):
        return {}

    def split(self, progress):
        rows = [Item("a" * n, "b" * n) for n in range(1, 9) for _ in range(9)]
        return Split(rows, rows[:1], {}, {})


def test_a_pool_saves_padding_in_every_epoch():
    def padding(pool):
        data = ItemData(Lengths(), 8, 4, 0, pool).prepare(lambda line: None)
        return [sum(int((data.train_batch(s)["pos"] < 0).sum()) for s in range(e * 18, e * 18 + 18)) for e in range(3)]

    assert all(with_pool < 0.3 * without for with_pool, without in zip(padding(18), padding(1), strict=True))


@pytest.mark.parametrize(("name", "read"), [("pinyin", "ids"), ("g2p_cmudict", "src")])
def test_a_share_of_what_training_reads_is_hidden_and_nothing_else(name, read, stand_ins):
    whole, hidden = made(name, batch_size=40), made(name, batch_size=40, hide=0.25)
    plain, batches = ([data.train_batch(step) for step in range(3)] for data in (whole, hidden))
    for before, after in zip(plain, batches, strict=True):
        assert all(torch.equal(torch.as_tensor(before[k]), torch.as_tensor(after[k])) for k in before if k != read)
        gone = before[read] != after[read]
        assert set(hidden.symbols(after[read][gone].tolist())) == {"[unk]"}
        assert 0.1 < gone.float().mean() / (before["src_pos" if read == "src" else "pos"] >= 0).float().mean() < 0.4
    parts = [hidden.train_batch(1, micro, 4)[read] for micro in range(4)]
    assert torch.equal(torch.cat(parts), batches[1][read])
    assert all(map(torch.equal, *([b[read] for b in data.val_batches()] for data in (whole, hidden))))


def test_texts_in_pieces_of_three_characters(stand_ins):
    split = LangId(val_one_in=4, gram=3).split(print)
    letters = LangId(val_one_in=4).split(print)
    assert split.baselines == letters.baselines
    for item, spelled in zip(split.train, letters.train, strict=True):
        assert [piece[1] for piece in item.source] == list(spelled.source)
        assert (item.source[0][0], item.source[-1][2], {len(piece) for piece in item.source}) == (" ", " ", {3})


def test_catalogues_by_hand():
    messages = {"": "about itself", "menu\4Open": "Öffnen", "One\0Many": "Eins\0Viele"}
    assert catalogue(mo(messages)) == {"Open": "Öffnen", "One": "Eins"}
    with pytest.raises(DataError, match="cannot be read"):
        catalogue(b"no catalogue at all, of whatever order")


def test_a_text_of_two_languages_is_left_out():
    known = {
        "da": {"Save the page": "Gem denne side", "Yes": "Ja"},
        "nb": {"Save the page": "Gem denne side"},
        "en": {},
    }
    train, val = divided(known, 2)
    assert [("".join(item.source), item.answer) for item in train + val] == [("Save the page", ["en"])]


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: Dates(n_val=0), "n_val"),
        (lambda: Pinyin(val_one_in=1), "val_one_in"),
        (lambda: Pinyin(characters=1), "characters"),
        (lambda: G2PCmudict(stress="yes"), "stress"),
        (lambda: LangId(val_one_in=2.5), "val_one_in"),
        (lambda: LangId(gram=4), "gram"),
    ],
)
def test_what_cannot_be_is_refused(build, key):
    with pytest.raises(ConfigError, match=f"data.source.{key}"):
        build()


@pytest.mark.parametrize("setting", [{"pool": 0}, {"pool": 1.5}, {"hide": 1.0}, {"hide": "x"}])
def test_settings_of_batches_that_cannot_be_are_refused(setting):
    with pytest.raises(ConfigError, match=rf"data\.{next(iter(setting))}"):
        ItemData(Lengths(), 8, 4, 0, **setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "source", "rows", "baseline", "expected"),
    [
        (pinyin, Pinyin, (47_447, 4_845), "no context", 0.9477),
        (pinyin, lambda: Pinyin(characters=False), (42_264, 4_845), "no context, with a dictionary", 0.9474),
        (g2p_cmudict, G2PCmudict, (126_966, 6_264), "letter by letter, whole rows", 0.0310),
        (langid, LangId, (10_640, 1_222), "naive bayes, 3-grams", 0.9296),
    ],
)
def test_the_real_packages(module, source, rows, baseline, expected):
    try:
        module.WHEEL.content()
    except DataError as error:
        pytest.skip(f"the package cannot be had here: {error}")
    data = ItemData(source(), 48, 8, 0).prepare(lambda line: None)
    assert (data.record["train_rows"], data.record["val_rows"]) == rows
    assert data.baselines()[baseline] == pytest.approx(expected, abs=5e-4)
