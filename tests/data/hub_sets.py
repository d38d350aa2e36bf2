"""Stand-ins of four data sets of the hub: their files, columns, splits and labels, with texts of our own."""

import io
import json
import random

import pyarrow
import pyarrow.parquet

GOOD, BAD = "a fine warm film that we loved".split(), "a dull cold film that we hated".split()
WORDS = {"a dog": "ein Hund", "a cat": "eine Katze", "two men": "zwei Männer", "a child": "ein Kind"}
DOES = {"runs": "läuft", "sleeps": "schläft", "sits": "sitzt", "plays": "spielt"}
WHERE = {"in the park": "im Park", "on a bench": "auf einer Bank", "in the snow": "im Schnee"}


def parquet(**columns):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def card(*lines):
    return "\n".join(["---", *lines, "---", "# A card"]).encode()


def configs(subsets):
    lines = ["configs:"]
    for subset, (folder, splits) in subsets.items():
        lines += [f"- config_name: {subset}", "  data_files:"]
        lines += [line for s in splits for line in (f"  - split: {s}", f"    path: {folder}/{s}-*")]
    return lines


def stories(first, n):
    draw = random.Random(first)
    return [f"Story {first + i}. One day a {draw.choice('cat dog bird'.split())} saw a ball." for i in range(n)]


def tinystories():
    return {
        "README.md": card("license: cdla-sharing-1.0", *configs({"default": ("data", ["train", "validation"])})),
        "data/train-00000-of-00001-2d5a1467fff1081b.parquet": parquet(text=stories(0, 400)),
        "data/validation-00000-of-00001-869c898b519ad725.parquet": parquet(text=stories(1000, 100)),
        "TinyStories-train.txt": b"another form of the same\n<|endoftext|>\n",
    }


def article(title, n):
    lines = ["", f" = {title} = \n", ""]
    for i in range(n):
        lines += [f" = = Part {i} of {title} = = \n", "", f" The length is = {i} = units , said @-@ in part {i} . \n"]
        lines += [" = 7 = \n", f" A paragraph of {title} follows . \n", ""]
    return lines


def wikitext():
    splits = ["test", "train", "validation"]
    names = {s: f"wikitext-2-raw-v1/{s}-00000-of-00001.parquet" for s in splits}
    subsets = {s: (s, splits) for s in ("wikitext-2-raw-v1", "wikitext-2-v1")}
    return {
        "README.md": card("license:", "- cc-by-sa-3.0", "- gfdl", *configs(subsets)),
        names["train"]: parquet(text=[line for i in range(12) for line in article(f"Article {i}", 5)]),
        names["validation"]: parquet(text=[*article("Owls", 9), *article("E = mc ²", 9)]),
        names["test"]: parquet(text=article("Never read", 1)),
        **{f"wikitext-2-v1/{s}-00000-of-00001.parquet": parquet(text=["<unk>"]) for s in splits},
    }


def reviews(seed, label, n):
    draw = random.Random(seed)
    texts = [f"Review {seed}-{i}<br /><br />" + " ".join(draw.choices(GOOD if label else BAD, k=30)) for i in range(n)]
    return {"text": texts, "label": [label] * n}


def imdb():
    info = ["dataset_info:", "  config_name: plain_text", "  features:", "  - name: text", "    dtype: string"]
    info += ["  - name: label", "    dtype:", "      class_label:", "        names:", "          '0': neg"]
    info += ["          '1': pos"]
    splits = ["train", "test", "unsupervised"]

    def both(seed):  # sorted by class, as they are
        negative, positive = reviews(seed, 0, 60), reviews(seed + 1, 1, 60)
        return {name: [*negative[name], *positive[name]] for name in negative}

    rows = {"train": both(0), "test": both(10), "unsupervised": {"text": ["unread"], "label": [-1]}}
    rows["train"]["text"][7] = rows["test"]["text"][7]
    return {
        "README.md": card("license: other", *configs({"plain_text": ("plain_text", splits)}), *info),
        **{f"plain_text/{s}-00000-of-00001.parquet": parquet(**rows[s]) for s in splits},
    }


def pairs(seed, n):
    draw = random.Random(seed)
    for _ in range(n):
        chosen = [draw.choice(list(words.items())) for words in (WORDS, DOES, WHERE)]
        (en, de) = (" ".join(side).capitalize() + "." for side in zip(*chosen, strict=True))
        yield json.dumps({"en": f"{en} {draw.randrange(1000)} {seed}", "de": f"{de} {seed}"}, ensure_ascii=False)


def multi30k():
    files = {"train.jsonl": pairs(0, 300), "val.jsonl": pairs(1, 40), "test.jsonl": pairs(2, 5)}
    found = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in files.items()}
    return {"README.md": card("language:", "- en", "- de"), **found}


def repos():
    return {
        "roneneldan/TinyStories": tinystories(),
        "Salesforce/wikitext": wikitext(),
        "stanfordnlp/imdb": imdb(),
        "bentrevett/multi30k": multi30k(),
    }
