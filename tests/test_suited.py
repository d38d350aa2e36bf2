"""What goes with a model or a task, where the command line does not say."""

import parts
import pytest
import yaml

from minitf.config import build_data, compose, config_dir
from minitf.errors import ConfigError
from minitf.suited import suited

TABLE = yaml.safe_load((config_dir() / "suited.yaml").read_text(encoding="utf-8"))


def test_a_model_brings_its_task_and_a_task_its_data():
    assert suited(["model=gpt_tiny"]) == []
    assert suited(["model=bert_tiny", "seed=1"])[:3] == ["data=pinyin", "task=tag", "model/head=tag"]
    assert suited(["model=bert_tiny", "task=masked_lm"]) == ["data.tokenizer.special=[bos,mask]"]
    assert suited(["task=classify", "model=bert_tiny"]) == ["data=majority", "model/head=classify"]
    assert suited(["data=histogram"]) == ["task=tag", "model=bert_tiny", "model/head=tag"]
    assert suited(["data=repeat"]) == ["task=answer"]
    steps = ["trainer.max_steps=700", "trainer.val_every=350"]
    assert suited(["-m", "model=encdec_tiny", "seed=0,1"]) == ["data=dates", "task=seq2seq", *steps]
    assert suited(["task=seq2seq"]) == ["data=dates", "model=encdec_tiny", *steps]
    assert suited(["task=classify"]) == ["data=majority", "model/head=classify", "model=bert_tiny"]


def test_a_recipe_comes_with_data_and_its_model():
    recipe = ["model.n_encoder_layers=3", "model.dropout=0.1", "trainer.max_steps=2400", "trainer.val_every=600"]
    assert suited(["data=g2p_cmudict"]) == ["task=seq2seq", "model=encdec_tiny", *recipe]
    assert suited(["data=g2p_cmudict", "trainer.max_steps=5"]) == [
        "task=seq2seq",
        "model=encdec_tiny",
        *recipe[:2],
        recipe[3],
    ]
    # with another model, which may have no such layers, nothing is said
    assert suited(["data=g2p_cmudict", "model=gru_none"]) == ["task=seq2seq", "optim=adamw"]
    assert suited(["data=dates", "+experiment=dates"]) == ["task=seq2seq", "model=encdec_tiny"]
    assert suited(["data=dates", "+experiment=smoke"]) == ["task=seq2seq", "model=encdec_tiny"]


def test_what_was_typed_wins():
    assert suited(["model=encdec_tiny", "data=other"]) == ["task=seq2seq"]
    assert suited(["model=bert_tiny", "task=tag", "model/head=mine", "data=histogram"]) == []
    assert suited(["model=bert_tiny", "data.tokenizer.special=[bos]"]) == ["task=masked_lm"]
    assert suited(["task=masked_lm", "data=shakespeare"]) == ["data.tokenizer.special=[bos,mask]"]
    assert suited(["data=repeat", "task=causal_lm"]) == []
    assert suited(["data=histogram", "model=gpt_tiny"]) == ["task=tag", "model/head=tag"]


def test_a_sweep_over_models_of_one_kind_only():
    assert suited(["-m", "model=gpt_tiny,llama_tiny"]) == []
    assert suited(["-m", "model=vaswani_tiny,t5_tiny"]) == ["data=reverse", "task=seq2seq"]
    assert suited(["-m", "model=encdec_tiny,t5_tiny", "data=sort"]) == ["task=seq2seq"]
    assert suited(["-m", "model=gpt_tiny,bert_tiny", "task=masked_lm"]) == ["data.tokenizer.special=[bos,mask]"]
    with pytest.raises(ConfigError, match="gpt_tiny with the usual; bert_tiny with data=pinyin"):
        suited(["-m", "model=gpt_tiny,bert_tiny"])
    with pytest.raises(ConfigError, match="gpt_tiny with the usual; bert_tiny with task=masked_lm"):
        suited(["-m", "model=gpt_tiny,bert_tiny", "data=shakespeare"])


def test_text_that_was_typed_keeps_an_encoder_from_its_own_data():
    hidden = ["task=masked_lm", "data.tokenizer.special=[bos,mask]"]
    assert suited(["model=bert_tiny", "data=shakespeare"]) == hidden
    assert suited(["model=bert_tiny", "data/tokenizer=char"]) == hidden


def test_settings_go_with_two_choices_and_not_with_one_of_them():
    recipe = TABLE["data=pinyin model=bert_tiny"]
    assert any(setting.startswith("trainer.max_steps=") for setting in recipe)
    for typed in (["model=bert_tiny"], ["data=pinyin"], ["data=pinyin", "model=bert_tiny"]):
        assert suited(typed)[-len(recipe) :] == recipe
    assert suited(["data=pinyin", "model=gpt_tiny"]) == ["task=tag", "model/head=tag"]
    assert not set(recipe) & set(suited(["-m", "data=pinyin,histogram"]))
    typed = ["model=bert_tiny", "trainer.max_steps=7"]
    assert set(recipe) - set(suited(typed)) == {s for s in recipe if s.startswith("trainer.max_steps=")}
    # what an experiment sets is as if it were typed
    shorter = suited(["model=bert_tiny", "+experiment=smoke"])
    assert {s.split("=")[0] for s in set(recipe) - set(shorter)} == {"trainer.max_steps", "trainer.val_every"}


@pytest.mark.parametrize("choice", parts.some_by_default(sorted(TABLE), 4))
def test_every_line_composes(choice):
    typed = choice.split()
    for group, option in (part.split("=") for part in typed):
        assert (config_dir() / group / f"{option}.yaml").is_file()
    if "model/head" in str(TABLE[choice]):
        typed.append("model=bert_tiny")
    assert build_data(compose("train", [*typed, *suited(typed)])).gives
