"""The Python examples of the README run, on a small model, and show what they say."""

import ast
import re
from pathlib import Path

import torch

from minitf.cache import check_maker
from minitf.cache.window import Window
from minitf.commands.generate import stream
from minitf.config import build, compose
from minitf.generation.sampling import Greedy
from minitf.runs import load_run

TEXT = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"(?m)(?:^(?:    .*)?\n)+", TEXT) if "load_run(" in block]


def run(block, folder):
    """Names that an example leaves, and what each of its lines that are only looked at gives."""
    lines = [line[4:] for line in block.splitlines()]
    tree = ast.parse("\n".join(lines).replace('"runs/..."', repr(str(folder))))
    names, shown = {}, []
    for line in tree.body:
        if isinstance(line, ast.Expr):
            shown.append(eval(compile(ast.Expression(line.value), "README", "eval"), names))
        else:
            exec(compile(ast.Module([line], []), "README", "exec"), names)
    return names, shown


def test_there_are_three_examples():
    assert len(BLOCKS) == 3


def test_text_in_python_is_the_text_of_the_command(toy):
    (block,) = [block for block in BLOCKS if "generate(" in block]
    names, (text, weights, positions) = run(block, toy)
    model, tokenizer, _ = load_run(toy)
    how = {"sampler": Greedy(), "make_cache": None, "max_new_tokens": 20, "seed": 0}
    assert text == "".join(stream(model, tokenizer, "def main(", **how))
    assert len(text) > 3
    n = names["ids"].size(1)
    assert weights.shape == (1, 4, 1, n)
    assert positions.tolist() == [list(range(n))]


def test_looking_inside_shows_what_it_says(toy):
    (block,) = [block for block in BLOCKS if "zero_heads" in block]
    names, (weights,) = run(block, toy)
    n = names["ids"].size(1)
    assert weights.shape == (1, 4, n, n)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, n))


def test_the_battery_names_heads_and_gives_their_scores(toy):
    (block,) = [block for block in BLOCKS if "battery(" in block]
    names, ((called, of_head, scores),) = run(block, toy)
    assert names["found"].settings["untrained"] == 3
    assert not called  # it has learned nothing yet
    assert all(scores[name.score] == name.value >= name.needed for name in of_head)
    assert 0 <= scores["prefix_matching"] < 0.4
    assert sum(head.place == "1.0" for head in names["found"].heads) == 1


def test_a_line_of_the_config_makes_caches():
    (typed,) = re.findall(r"`(build\(compose\(.*?\)\.cache\))`", TEXT)
    make = eval(typed, {"build": build, "compose": compose})
    check_maker(make)
    assert (type(make()), make().window) == (Window, 64)
    assert "lambda: Window(256, n_sink=4)" in TEXT
    check_maker(lambda: Window(256, n_sink=4))
