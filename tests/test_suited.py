"""What goes with a model or a task, where the command line does not say."""

import pytest
import yaml

from minitf.config import build_data, compose, config_dir
from minitf.errors import ConfigError
from minitf.suited import suited

TABLE = yaml.safe_load((config_dir() / "suited.yaml").read_text(encoding="utf-8"))


def test_a_model_brings_its_task_and_a_task_its_data():
    assert suited(["model=gpt_tiny"]) == []
    assert suited(["model=bert_tiny", "seed=1"]) == ["task=masked_lm", "data.tokenizer.special=[bos,mask]"]
    assert suited(["task=classify", "model=bert_tiny"]) == ["data=majority", "model/head=classify"]
    assert suited(["data=histogram"]) == ["task=tag", "model=bert_tiny", "model/head=tag"]
    assert suited(["data=repeat"]) == ["task=answer"]
    steps = ["trainer.max_steps=700", "trainer.val_every=350"]
    assert suited(["-m", "model=encdec_tiny", "seed=0,1"]) == ["task=seq2seq", "data=dates", *steps]
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
    # of another model, which may have no such layers, nothing is said
    assert suited(["data=g2p_cmudict", "model=gru_none"]) == ["task=seq2seq", *recipe[2:], "optim=adamw"]
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
    assert suited(["-m", "model=vaswani_tiny,t5_tiny"]) == ["task=seq2seq", "data=reverse"]
    assert suited(["-m", "model=encdec_tiny,t5_tiny", "data=sort"]) == ["task=seq2seq"]
    assert suited(["-m", "model=gpt_tiny,bert_tiny", "task=masked_lm"]) == ["data.tokenizer.special=[bos,mask]"]
    with pytest.raises(ConfigError, match="gpt_tiny with the usual; bert_tiny with task=masked_lm"):
        suited(["-m", "model=gpt_tiny,bert_tiny"])


@pytest.mark.parametrize("choice", sorted(TABLE))
def test_every_line_composes(choice):
    group, option = choice.split("=")
    assert (config_dir() / group / f"{option}.yaml").is_file()
    typed = (
        [choice] if group == "model" else [choice, *(["model=bert_tiny"] if "model/head" in str(TABLE[choice]) else [])]
    )
    assert build_data(compose("train", [*typed, *suited(typed)])).gives
