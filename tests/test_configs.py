"""Every file of every config group composes, lists its constructor's arguments, and builds a model that trains."""

import importlib
import inspect
import shutil
from functools import cache

import pytest
import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from minitf.config import build, check, compose, config_dir, config_groups, group_options, set_data_facts
from minitf.errors import ConfigError
from minitf.kinds import DATA_FACTS

# what a part gets from whoever calls it, by the last group in its path
GIVEN = {
    "attention": {"d_model", "mask"},
    "score": {"d_head", "n_heads"},
    "inner": {"d_head", "n_heads"},  # the score inside another
    "normalize": {"n_heads"},
    "scaled_dot": {"d_head", "n_heads"},  # of bench=attention
    "additive": {"d_head", "n_heads"},
    "projection": {"d_model", "n_heads", "n_kv_heads", "d_head", "d_value"},
    "qk_norm": {"d_model"},
    "fast": {"q", "k", "v", "scale", "mask", "q_pos", "k_pos", "plain", "bias", "dropout"},
    "position": {"d_model", "d_head", "n_heads", "max_len", "causal"},
    "ffn": {"d_model"},
    "expert": {"d_model"},
    "norm": {"d_model"},
    "head": {"d_model", "vocab_size", "n_classes", "tied_to"},
    "layer": {"d_model", "attention", "ffn", "norm", "dropout", "cross_attention", "position"},
    "optim": {"model"},
    "schedule": {"optimizer", "n_steps"},
    "callbacks": {"run_dir", "config", "stop"},
    "logger": {"run_dir", "config"},
    "trainer": {"run_dir", "loggers", "callbacks"},
    "bench": {"folder"},
    "demo": {"config"},
}
FACTS = {"data": set(DATA_FACTS)}
TOP = {"cache": "generate", "bench": "benchmark", "demo": "demo"}
# options that bring a group which the default model has not
NEEDS = {
    "model/position/scaling": ["model/position=rope"],
    "model/ffn/expert": ["model/ffn=moe"],
    "model/head": ["model=bert_tiny"],
    "model/head=pointer": ["model=encdec_tiny"],
    "experiment=dates": ["data=dates", "task=seq2seq", "model=encdec_tiny"],
    "model/head/pool": ["model=bert_tiny", "model/head=classify"],
}
SIZES = {"vocab_size": 31, "src_vocab_size": 31, "n_classes": 5}


def options() -> list[tuple[str, str]]:
    found = []
    for group in config_groups():
        if group == "study":  # says what is run, not what is built: see tests/studies/test_study_files.py
            continue
        for path in sorted((config_dir() / group).glob("*.yaml")):
            found.append((group, path.stem))
    return found


def composed(group: str, option: str) -> DictConfig:
    name = TOP.get(group.split("/")[0], "train")
    return compose(name, chosen(group, option))


def chosen(group: str, option: str) -> list[str]:
    needs = NEEDS.get(f"{group}={option}", NEEDS.get(group, []))
    return [*needs, f"+{group}={option}" if group == "experiment" else f"{group}={option}"]


def nodes_with_target(node: object, path: tuple[str, ...] = ()):
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node
        for key, child in node.items():
            yield from nodes_with_target(child, (*path, key))
    elif isinstance(node, list):
        for i, child in enumerate(node):
            yield from nodes_with_target(child, (*path, str(i)))


@pytest.mark.parametrize(("group", "option"), options())
def test_yaml_lists_exactly_the_constructors_arguments(group, option):
    alone = OmegaConf.load(config_dir() / group / f"{option}.yaml")
    below = tuple(group.split("/"))
    if "defaults" in alone:  # composing takes 0.2 s
        alone, below = composed(group, option), ()
    tree = OmegaConf.to_container(alone, resolve=False)
    tree.pop("hydra", None)
    for path, node in nodes_with_target(tree, below):
        module, _, name = node["_target_"].rpartition(".")
        target = getattr(importlib.import_module(module), name)
        own_module = getattr(target, "__module__", "")
        assert own_module.split(".")[0] in {"minitf", "torch", "lightning"}
        place = next((name for name in reversed(path) if name != "inner"), "")  # a part may hold another of its kind
        named = [
            p for p in inspect.signature(target).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        wanted = {p.name for p in named} - GIVEN.get(place, set())
        listed = {k for k in node if not k.startswith("_")} - FACTS.get(place, set())
        assert listed == wanted, f"{group}={option}: {'.'.join(path)} lists {listed}, the constructor takes {wanted}"


def outputs(model: torch.nn.Module) -> torch.Tensor:
    """What a model of any architecture makes of random tokens."""
    if hasattr(model, "encode"):
        return model(torch.randint(31, (2, 12)), None, torch.randint(31, (2, 16)))
    return model(torch.randint(31, (2, 16)))


MODEL_OPTIONS = [(g, o) for g, o in options() if g == "model" or g.startswith("model/")]


@cache
def alone(preset: str) -> DictConfig:
    return compose(f"model/{preset}").model


@pytest.mark.parametrize(("group", "option"), MODEL_OPTIONS)
def test_every_model_option_runs_forward_and_backward(group, option):
    typed = dict(choice.split("=", 1) for choice in chosen(group, option))
    preset = typed.pop("model", "gpt_tiny")  # composed alone, because that is quicker
    facts = {"max_len": 16, **SIZES, "d_model": 32}
    own = alone(preset)
    given = [f"model.{key}={value}" for key, value in facts.items() if key in own]
    model = build(compose(f"model/{preset}", [*(f"{g}={o}" for g, o in typed.items()), *given]).model)
    logits = outputs(model)
    assert logits.shape in {(2, 16, 31), (2, 16, 12), (2, 16, 5), (2, 5)}
    logits.float().logsumexp(-1).mean().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    assert not without, f"no gradient reaches {without}"


@pytest.mark.slow
@pytest.mark.parametrize(("group", "option"), MODEL_OPTIONS)
def test_every_model_option_passes_the_checks_of_a_command_line(group, option):
    check(compose("train", chosen(group, option)), "train", chosen(group, option))


@pytest.mark.parametrize("preset", [option for group, option in MODEL_OPTIONS if group == "model"])
def test_no_two_layers_share_a_parameter(preset):
    cfg = compose("train", [f"model={preset}", "data.seq_len=16"])
    set_data_facts(cfg, **SIZES)
    owners: dict[int, str] = {}
    for name, p in build(cfg.model).named_parameters(remove_duplicate=False):
        first = owners.setdefault(id(p), name)
        tables = {"embedding.weight", "source_embedding.weight", "head.weight", "head.output.weight"}
        assert first == name or {first, name} <= tables


@pytest.mark.parametrize("preset", [option for group, option in MODEL_OPTIONS if group == "model"])
def test_what_a_preset_says_about_a_part_fits_every_option_of_it(preset):
    for key in OmegaConf.load(config_dir() / "model" / f"{preset}.yaml"):
        if key != "defaults" and (config_dir() / "model" / key).is_dir():
            for option in group_options(f"model/{key}"):
                cfg = compose("train", [f"model={preset}", f"model/{key}={option}"])
                set_data_facts(cfg, **SIZES)
                if f"{key}={option}" == "attention=none":  # there is nothing to rotate
                    cfg.model.position = compose("train", ["model/position=none"]).model.position
                build(cfg.model)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("+model.n_layer=3", "model.n_layers"),
        ("+model.attention.n_head=2", "model.attention.n_heads"),
        ("++trainer.max_step=3", "trainer.max_steps"),
    ],
)
def test_plus_does_not_switch_key_checking_off(override, key):
    with pytest.raises(ConfigError, match=f"nearest: .*{key}"):
        check(compose("train", [override]), "train", [override])


@pytest.mark.parametrize(
    ("override", "kind"),
    [
        ("model.n_layers=two", "a whole number"),
        ("model.n_layers=2.5", "a whole number"),
        ("model.d_model=true", "a whole number"),
        ("model.dropout=none", "a number"),
        ("model.tie_embeddings=1", "true or false"),
        ("optim.lr=[1,2]", "a number"),
    ],
)
def test_a_value_of_another_kind_is_refused_before_anything_is_built(override, kind):
    with pytest.raises(ConfigError, match=kind):
        check(compose("train", [override]), "train", [override])


@pytest.mark.parametrize(
    "override", ["optim.lr=1", "optim.lr=1e-4", "model.attention.n_kv_heads=2", "trainer.clip_norm=null"]
)
def test_a_number_may_be_written_in_any_way(override):
    check(compose("train", [override]), "train", [override])


def test_command_line_over_experiment_over_main_file_over_preset(tmp_path):
    shutil.copytree(config_dir(), tmp_path / "configs")
    main = tmp_path / "configs" / "train.yaml"
    main.write_text(main.read_text(encoding="utf-8") + "\noptim:\n  lr: 0.25\n", encoding="utf-8")
    mine = tmp_path / "configs" / "experiment" / "mine.yaml"
    mine.write_text("# @package _global_\noptim:\n  lr: 0.5\n", encoding="utf-8")
    with initialize_config_dir(str(tmp_path / "configs"), version_base="1.3"):
        rates = [
            hydra_compose("train", overrides=typed).optim.lr
            for typed in ([], ["+experiment=mine"], ["+experiment=mine", "optim.lr=0.75"])
        ]
    assert rates == [0.25, 0.5, 0.75]
    assert compose("train").optim.lr == OmegaConf.load(config_dir() / "optim" / "muon.yaml").lr


FORBIDDEN = [
    (["model/attention=gqa", "model.attention.n_kv_heads=3"], r"n_heads \(4\) must be a multiple of n_kv_heads \(3\)"),
    (["model.attention.n_heads=3"], r"d_model \(128\) must be a multiple of n_heads \(3\)"),
    (["model/position=rope", "model.attention.d_head=3"], "rope needs an even d_head, got 3"),
    (["model.attention.n_heads=0"], "n_heads must be a whole number of at least 1, got 0"),
    (["model.n_layers=0"], "n_layers must be a whole number of at least 1"),
    (["model.dropout=1.5"], "dropout is a probability"),
    (["model/mask=sliding_window", "model.mask.window=0"], "window must be a whole number of at least 1, got 0"),
    (["model.ffn.d_ff=-1"], "d_ff must be a whole number of at least 1"),
    (["model.init.std=0"], "init std must be a finite number above 0, got 0"),
]


@pytest.mark.parametrize(("overrides", "message"), FORBIDDEN)
def test_forbidden_choices_say_what_is_wrong(overrides, message):
    cfg = compose("train", overrides)
    set_data_facts(cfg, vocab_size=31)
    with pytest.raises(ConfigError, match=message):
        build(cfg.model)
