"""Random command lines for training, as a pure function of a seed: mostly in range and small, often with a mistake.

Groups, options, keys and the kinds of their values are read from the config files, so that whatever is new there joins
by itself. Only sizes and what is slow or leaves this machine are listed here.
"""

import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from minitf.config import DATA_FACTS, config_dir, config_groups
from minitf.suited import suited

NAME = "train"
FACTS = [f"data.{fact}" for fact in DATA_FACTS]
# by the last part of the key: what keeps a run tiny, on this machine, and without a compiler
SMALL = {
    "d_model": (*(8, 16, 16, 24, 32, 48, 64) * 4, 10),
    "n_layers": (1, 1, 1, 2, 3),
    "n_encoder_layers": (1, 1, 2),
    "n_decoder_layers": (1, 1, 2),
    "n_val": (1, 5, 16),
    "n_heads": (*(1, 2, 2, 4, 4) * 3, 3),
    "n_kv_heads": (*("null", 1, 1, 2) * 3, 4, 3),
    "d_latent": (4, 16),
    "d_query_latent": ("null", 8),
    "d_rotary": (*(4, 8) * 3, 3),
    "d_head": (*("null", 4, 8, 16) * 3, 3),
    "d_ff": ("null", 1, 7, 16, 64),
    "vocab_size": (258, 280, 300),
    "seq_len": (*(8, 8, 16, 16, 24, 40) * 3, 4, 1),
    "batch_size": (*(2, 4, 4, 8) * 3, 1, 3),
    "max_steps": (3, 3, 4, 4, 2),
    "val_every": (1, 2, 3, 100),
    "log_every": (1, 2, 50),
    "accumulate": (1, 1, 1, 2, 2, 4),
    "cross_attention": ("null",),
    "warmup_steps": (0, 1, 2, 3),
    "chunk_rows": ("null", 1, 7, 64),
    "val_fraction": (0.2, 0.3, 0.5),
    "seed": (0, 1, 7, 12345, 2**32 - 1),
    "special": ("[bos]", "[bos,mask]"),
    "precision": ("auto", "auto", "32-true", "bf16-mixed", "bf16-true"),
    "strategy": ("auto", "ddp", "fsdp"),
    "accelerator": ("auto", "cpu"),
    "devices": (1,),
    "compile": ("false",),
    "online": ("false",),
    "dataset": ("nobody/nothing",),
}
# always given: their defaults are for real runs
FRAME = "d_model n_layers n_encoder_layers n_decoder_layers n_val".split()
FRAME += "seq_len batch_size max_steps vocab_size val_fraction path dataset".split()
# chosen seldom, and in this share of cases beside a mistake that is found before any work: they are slow, read what is
# not here, start processes, or are refused anyway
SELDOM = {
    **{("model/mask", name): 0.0 for name in ("full", "document", "bigbird", "block_local")},
    **{("model/mask", name): 0.0 for name in ("closed_diagonal", "prefix_lm")},
    **{("model/init", name): 0.0 for name in ("gain", "ffn_gain", "zero_q", "zero_qk")},
    ("model/attention", "none"): 0.0,
    ("model/attention/projection", "identity"): 0.0,
    ("model/attention/projection", "tied_qk"): 0.0,
    ("data", "python_stdlib"): 1.0,
    ("data", "shakespeare"): 1.0,
    **{("data", name): 1.0 for name in ("hub", "tinystories", "wikitext2", "imdb", "multi30k")},
    ("data", "dates"): 1.0,
    ("data", "pinyin"): 1.0,
    ("data", "g2p_cmudict"): 1.0,
    ("data", "langid"): 1.0,
    ("trainer", "ddp"): 1.0,
    ("trainer", "fsdp"): 1.0,
    ("logger", "wandb"): 0.7,
}
SURE = ("trainer.max_steps=0", "trainer.log_every=two", "+trainer.max_step=3", "task=nothing", "optim.lr=-1")
# one of each sort of wrong, or at least of strange
NUMBERS = (0, 1, -1, 2, 0.5, -0.1, 1e9, 10**9, 10**18, 10**30, -(10**9), 1e-30, 1e-300, 1e30, 1e300)
NUMBERS += ("nan", "inf", "-inf")
WORDS = ("null", "word", "word-1", "true", "false", "''", "' '", "é", "???", "-", "a/b", "1_0", "1,2", "a b", "'", '"')
WORDS += ("[]", "[1,2]", "[a]", "[0.9,nan]", "[0,0]", "[1,1]", "[0.5,0.5]", "[[1]]", "{}", "{a:1}", "0x10", "1e", "*")
WORDS += ("${seed}", "${nope}", "${data.seq_len}", "${oc.env:HOME}", "\\")
# what stays away from certain keys: it would be right, and take minutes
RIGHT_BUT_SLOW = {"compile": ("true",), "online": ("true",), "devices": (2,)}


@dataclass
class Case:
    """One command line.

    Attributes:
        seed: makes the same again.
        overrides: what is typed.
        chosen: option of each group.
        odd: those of the overrides that are no in-range value.
        sure: it must be refused, before any data is read.
    """

    seed: int
    overrides: list[str]
    chosen: dict[str, str] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    sure: bool = False


def generate(seed: int, corpus: Path) -> Case:
    """The command line of a seed, for training on the texts in `corpus`."""
    draw = random.Random(f"config {seed}")
    names = options("data")
    # most lines take data that goes with their model; every tenth takes the next data set in turn
    chosen = _choose(draw, None if seed % 10 else names[seed // 10 % len(names)])
    in_defaults = {group: option for group, option in chosen.items() if group != "experiment"}
    defaults = keys_of(in_defaults)
    values = {key: _in_range(draw, key, default, corpus) for key, default in defaults.items()}
    free = [key for key, value in values.items() if value is not None]
    frame = [key for key in free if _last(key) in FRAME]
    taken = dict.fromkeys([*frame, *draw.sample(free, min(len(free), draw.randrange(8)))])
    usual = _usual(in_defaults)
    always = ("task", "data")  # what goes with the model would be another one
    typed = {g: f"{g}={option}" for g, option in in_defaults.items() if usual[g] != option or g in always}
    typed |= {key: f"{key}={values[key]}" for key in taken}
    if "experiment" in chosen:
        typed["+experiment"] = f"+experiment={chosen['experiment']}"
    odd = dict(_mistake(draw, defaults, in_defaults) for _ in range(draw.choice((0, 0, 0, 0, 0, 0, 1, 1, 2))))
    sure = any(draw.random() < SELDOM.get(option, 0.0) for option in chosen.items())
    if sure:
        text = draw.choice(SURE)
        odd[text.partition("=")[0]] = text
    return Case(seed, list((typed | odd).values()), chosen, list(odd.values()), sure)


def options(group: str) -> list[str]:
    """Names of the options of a config group."""
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))


def groups() -> list[str]:
    """The groups that training has: those of its defaults, what lies below them, and the experiments."""
    top = {group.split("/")[0] for group in _read("", NAME).groups} | {"experiment"}
    return [group for group in config_groups() if group.split("/")[0] in top and options(group)]


def keys_of(chosen: dict[str, str]) -> dict[str, Any]:
    """Every dotted key that these options have, with its value as it stands in their files."""
    found = dict(_read("", NAME).keys)
    for group, option in chosen.items():
        own = _read(group, option).keys
        found |= {f"{group.replace('/', '.')}.{key}": value for key, value in own.items()}
    return found


@dataclass
class _Option:
    """What an option's file holds, with that of what it is made from: groups below it, changes deeper down, keys."""

    groups: dict[str, str] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)


@cache
def _read(group: str, option: str) -> _Option:
    node = OmegaConf.load(config_dir() / group / f"{option}.yaml")
    found = _Option()
    for entry in node.pop("defaults", []):
        if isinstance(entry, DictConfig):
            ((name, default),) = entry.items()
            if name.startswith("override "):
                found.changes[f"{group}/{name.removeprefix('override ')}"] = default
            elif "@" not in name:  # a part inside a part: left as it is
                found.groups[f"{group}/{name}".lstrip("/")] = default
        elif entry != "_self_":
            name, _, place = entry.partition("@")
            inherited = _read(group, name)
            found.groups |= inherited.groups
            found.changes |= inherited.changes
            found.keys |= {f"{place}.{key}" if place else key: value for key, value in inherited.keys.items()}
    node.pop("hydra", None)
    found.keys |= _leaves(OmegaConf.to_container(node, resolve=False))
    return found


def _leaves(node: dict, prefix: str = "") -> dict[str, Any]:
    found = {}
    for key, value in node.items():
        inside = isinstance(value, dict) and value
        found |= _leaves(value, f"{prefix}{key}.") if inside else {f"{prefix}{key}": value}
    return found


def _choose(draw: random.Random, data: str | None) -> dict[str, str]:
    """An option for each group, from above to below: an option says which groups there are under it."""
    chosen: dict[str, str] = {}
    waiting = list(_read("", NAME).groups)
    typed = ["model=gpt_tiny", f"data={data}"] if data else []
    typed = typed if data is None or not any(o.startswith("model=") for o in suited(typed[1:])) else typed[1:]
    fits = dict(override.split("=", 1) for override in [*typed, *suited(typed)])
    while waiting:
        group = waiting.pop(0)
        names = options(group)
        weights = _weights(group, names)
        chosen[group] = draw.choices(names, weights)[0]
        if group == "model" and not data and draw.random() < 0.92:
            fits = _fitting(draw, chosen[group])
        chosen[group] = fits.get(group, chosen[group])
        waiting += _read(group, chosen[group]).groups
    if draw.random() < 0.05:
        chosen["experiment"] = draw.choice(options("experiment"))
    return chosen


def _weights(group: str, names: list[str]) -> list[float]:
    usual = dict.fromkeys(names, 1.0)
    # those that bring a mistake with them are the seldomest
    rare = {name: 0.02 if SELDOM[group, name] else 0.15 for name in names if (group, name) in SELDOM}
    return list((usual | rare).values())


def _fitting(draw: random.Random, model: str) -> dict[str, str]:
    """A task, data and a head that go with a model."""
    task = draw.choice(("classify", "tag")) if draw.random() < 0.5 else "masked_lm"
    typed = [f"model={model}", f"task={task}"]
    typed = typed if model == "bert_tiny" else typed[:1]
    fits = dict(override.split("=", 1) for override in [*typed, *suited(typed)])
    own = _read("model", model)
    head = {group: option for group, option in (own.groups | own.changes).items() if group == "model/head"}
    texts = ["text_files", "hub", "python_stdlib", "shakespeare"]
    text = draw.choices(texts, _weights("data", texts))[0]
    if fits.get("data") == "dates":  # takes seconds to make
        fits["data"] = draw.choice(("reverse", "sort"))
    fits = {"task": "causal_lm", "data": text, **head, **fits}
    return {group: option for group, option in fits.items() if group in config_groups()}


def _usual(chosen: dict[str, str]) -> dict[str, str]:
    """What each of these groups would be if it were not typed."""
    usual = dict(_read("", NAME).groups)
    for group, option in chosen.items():
        usual |= _read(group, option).groups
    for group, option in chosen.items():
        usual |= _read(group, option).changes
    return usual


def _in_range(draw: random.Random, key: str, default: Any, corpus: Path) -> Any:
    """A value that the key's kind allows, as it is typed; None: better not given."""
    last = _last(key)
    if last.startswith("_") or key in FACTS or str(default).startswith("${") or default == {}:
        return None
    if last == "path":
        return corpus
    if last in SMALL:
        return draw.choice(SMALL[last])
    return _like(draw, default)


def _like(draw: random.Random, default: Any) -> Any:
    """A value of the same kind."""
    if isinstance(default, bool):
        return draw.choice(("true", "false"))
    if isinstance(default, int):
        return draw.choice((default, default + 1, max(1, default // 2), 1))
    if isinstance(default, float):
        if default == 0:
            return draw.choice((0, 0.1, 0.5))
        return draw.choice((default, default / 2, min(2 * default, (1 + default) / 2) if default < 1 else 2 * default))
    if isinstance(default, list):
        return f"[{','.join(str(_like(draw, item)) for item in default)}]"
    return draw.choice(("null", 1, 2, 8)) if default is None else None


def _mistake(draw: random.Random, defaults: dict[str, Any], chosen: dict[str, str]) -> tuple[str, str]:
    """A strange override; returns (what it takes the place of, as typed)."""
    key = draw.choice([k for k in defaults if not _last(k).startswith("_") or draw.random() < 0.1])
    group = draw.choice([group for group in chosen if (group, chosen[group]) not in SELDOM])
    kind = draw.choices(("value", "key", "group"), (8, 2, 1))[0]
    if kind == "value":
        slow = RIGHT_BUT_SLOW.get(_last(key), ())
        value = draw.choice([value for value in draw.choice((NUMBERS, NUMBERS, WORDS)) if value not in slow])
        return key, f"{draw.choice(('', '', '', '++'))}{key}={value}"
    at = draw.randrange(len(key))
    texts = {
        "key": (
            f"+{key}_=1",
            f"{key[:at]}{key[at + 1 :]}=1",
            f"+{key[:at]}x{key[at:]}=1",
            f"~{key}",
            f"+{key}=1",
            f"{key}",
            f"+{key}.more=1",
            f"{key.rpartition('.')[0] or key}=1",
            f"{key.rpartition('.')[0] or key}=null",
            f"~{key.rpartition('.')[0] or key}",
        ),
        "group": (
            f"{group}={chosen[group][:-1]}",
            f"{group}=null",
            f"{group}=",
            f"{group}=[{','.join(options(group))}]",
            f"{group}=1",
            f"~{group}",
            f"+{group}={chosen[group]}",
            f"{group.replace('/', '.')}={chosen[group]}",
            f"{group}@word={chosen[group]}",
            f"{group}s={chosen[group]}",
            f"+{group}/word=1",
        ),
    }
    text = draw.choice(texts[kind])
    return text.partition("=")[0], text


def _last(key: str) -> str:
    return key.rpartition(".")[2]
