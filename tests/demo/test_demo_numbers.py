"""The worked numbers of the texts, to the printed digits, computed by minitf's own parts."""

import pytest
from demos import table_of, text_of

from minitf.config import group_options
from minitf.demo.masks import picture, visibility
from minitf.errors import ConfigError


def has(text: str, *lines: str) -> None:
    found = [" ".join(line.split()) for line in text.splitlines()]
    for line in lines:
        assert line in found, f"no line {line!r}"


def test_three_tokens():
    """B1, B2."""
    text = text_of("demo=toy3")
    has(text, "x1 1 0 1", "x2 0 1 1", "x3 1 1 2")
    has(text, "x1 0.707 0.000 0.707", "x3 0.707 0.707 1.414")
    has(text, "x1 2.028 1.000 2.028 5.056", "x3 2.028 2.028 4.113 8.169")
    has(text, "x1 0.401 0.198 0.401", "x2 0.198 0.401 0.401", "x3 0.248 0.248 0.503")
    has(text, "x1 0.802 0.599", "x2 0.599 0.802", "x3 0.752 0.752")
    has(text, "x1 to x2 1.414 0.288", "x1 to x3 1.000 0.161", "x2 to x3 1.000 0.161")
    assert "highest for 3 of 3 tokens, for 1 of them alone" in text


def test_three_tokens_with_random_queries_and_keys_need_not_fit_themselves():
    """B3."""
    texts = [text_of("demo=toy3", f"demo.random={seed}") for seed in range(3)]
    assert len(set(texts)) == 3
    assert any("highest for 3 of 3" not in text for text in texts)
    assert text_of("demo=toy3", "demo.random=2") == texts[2]


def test_a_demo_has_a_mask_of_its_own_so_that_every_model_with_a_score_can_be_asked():
    has(text_of("demo=toy3", "model/mask@demo.mask=causal"), "x1 0.707 . .", "x1 1.000 0.000 0.000")
    for demo in ("toy3", "two_tokens", "pronoun"):
        text = text_of(f"demo={demo}", "model=bahdanau")
        assert "Additive" in text
        with pytest.raises(ConfigError, match="this model has none: choose another, such as model=gpt_tiny"):
            text_of(f"demo={demo}", "model=gru_none")


def test_pronoun_with_and_without_scale():
    """B4, B5, B6, C4b, C17."""
    text = text_of("demo=pronoun")
    has(text, "猫 (cat) (2, 2, 0, 0) 4.000 2.000 7.389 0.7361 54.598 0.9362")
    has(text, "球 (ball) (1, 0, 1, 0) 1.000 0.500 1.649 0.1643 2.718 0.0466")
    has(text, "追 (chase) (0, 0, 1, 1) 0.000 0.000 1.000 0.0996 1.000 0.0171")
    has(text, "sum 10.038 1.0000 58.316 1.0000")
    assert "0.324 with the score, 0.101 with q.k itself" in text
    assert "3.2 times less" in text
    assert "the row of weights: (0.7361, 0.1643, 0.0996)" in text


def test_two_tokens_and_only_a_value_changed():
    """B7, B8."""
    text = text_of("demo=two_tokens")
    before, after = text.split("Only the value")
    has(before, "token 1 1.0000 0.0000", "token 2 0.3302 0.6698", "token 1 2.0000 0.0000", "token 2 0.6605 2.6790")
    has(before, "token 1 0.7071 .")
    assert "to (10, 10): scores unchanged, weights unchanged, output changed" in after
    has(after, "token 1 2.0000 0.0000", "token 2 7.3581 6.6976")


def test_variance_of_products_is_the_width():
    """B12."""
    shown = table_of(text_of("demo=variance"))
    for d, root in ((8, "2.83"), (16, "4.00"), (64, "8.00"), (128, "11.31"), (256, "16.00")):
        variance, _, printed, scaled = shown[str(d)]
        assert float(variance) == pytest.approx(d, rel=0.05)
        assert printed == root
        assert float(scaled) == pytest.approx(1, abs=0.05)


def test_a_token_need_not_fit_itself_best():
    """C1b."""
    shown = table_of(text_of("demo=diagonal"))
    assert [shown[d][0] for d in ("2", "8", "64")] == ["28 %", "87 %", "100 %"]
    assert {row[1] for row in shown.values() if len(row) == 2 and row[1].endswith("%")} == {"100 %"}


def test_masks_in_pictures_and_numbers():
    text = text_of("demo=masks", "demo.length=8", "demo.n_layers=2")
    shown = table_of(text.split("\n\n")[-2])
    assert set(shown) == {"sizes", *group_options("model/mask")}
    assert shown["causal"] == ["0.562", "8", "8"]
    assert shown["full"] == ["1.000", "8", "8"]
    # a window of 4: three tokens further back with every layer
    assert shown["sliding_window"] == ["window=4 n_sink=0", "0.406", "4", "7"]
    window = visibility({"_target_": "minitf.blocks.mask.sliding_window.SlidingWindow", "window": 2}, 3)
    assert picture(window) == ["# . .", "# # .", ". # #"]
    for line in picture(visibility({"_target_": "minitf.blocks.mask.causal.Causal"}, 8)):
        assert line in text
