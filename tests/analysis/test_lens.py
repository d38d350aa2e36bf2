import parts
import pytest
import torch

from minitf.analysis.forward import run
from minitf.analysis.intervene.lens import attribution, logit_lens
from minitf.errors import ConfigError


def batch_of(model):
    torch.manual_seed(1)
    batch = {"ids": torch.randint(31, (2, 8)), "pos": parts.padded([8, 5], "right")}
    if hasattr(model, "encode"):
        batch["src"] = torch.randint(31, (2, 6))
    return batch


CHOICES = {
    "gpt": ["gpt_tiny"],
    "gpt2": ["gpt2_tiny"],  # biases
    "llama": ["llama_tiny"],
    "grouped": ["llama_tiny", "model/attention=mqa"],
    "latent": ["llama_tiny", "model/attention=mla"],
    "gated": ["gpt_tiny", "model/attention/projection=gated"],
    "mean": ["gpt_tiny", "model/attention/projection=mean"],
    "experts": ["gpt_tiny", "model/ffn=moe"],
    "no_attention": ["gpt_tiny", "model/attention=none", "model/position=none"],
    "no_norm": ["gpt_tiny", "model/norm=none"],
    "encdec": ["encdec_tiny"],
    "t5": ["t5_tiny"],
}


@pytest.mark.parametrize("choice", CHOICES)
def test_the_parts_add_up_to_the_logits(choice):
    model = parts.model(*CHOICES[choice], scale=1 if choice == "no_norm" else 2)
    batch = batch_of(model)
    tokens, against = torch.randint(31, (2, 8)), torch.randint(31, (2, 8))
    with torch.no_grad():
        logits = run(model, batch)
    for other in (None, against):
        found = attribution(model, batch, tokens, other)
        wanted = logits.gather(-1, tokens[..., None])[..., 0]
        wanted = wanted - (0 if other is None else logits.gather(-1, other[..., None])[..., 0])
        total = sum(found.parts.values())
        assert torch.allclose(found.logits, wanted, atol=1e-5)
        assert torch.allclose(total, wanted, atol=1e-3 * float(wanted.abs().max())), choice
    n_sites = {"no_attention": 0, "encdec": 4, "t5": 4}.get(choice, 2)
    assert sum("." in name for name in found.parts) == 4 * n_sites
    assert {"embedding", "mlp 0", "mlp 1", "biases"} <= set(found.parts)


def test_a_head_is_worth_what_is_lost_without_it_where_nothing_follows():
    """In the last layer without a network and without a final norm, a head's part is its whole effect."""
    model = parts.model("gpt_tiny", "model/norm=none", "model/ffn=none")
    batch, tokens = batch_of(model), torch.randint(31, (2, 8))
    found = attribution(model, batch, tokens).parts["1.2"]
    with torch.no_grad():
        own = run(model, batch)
        model.layers[1].attention.projection.by_head()["w_o"][2] = 0
        lost = (own - run(model, batch)).gather(-1, tokens[..., None])[..., 0]
    assert torch.allclose(found, lost, atol=1e-5)


@pytest.mark.parametrize("layer", ["post_norm", "sandwich"])
def test_writes_that_do_not_add_up_are_refused(layer):
    model = parts.model("gpt_tiny", f"model/layer={layer}", scale=4)
    with pytest.raises(ConfigError, match="add up"):
        attribution(model, batch_of(model), torch.zeros(2, 8, dtype=torch.int64))


@pytest.mark.parametrize("preset", ["gpt_tiny", "bert_tiny", "encdec_tiny", "t5_tiny"])
def test_the_lens_ends_in_the_output(preset):
    model = parts.model(preset, scale=2)
    batch = batch_of(model)
    found = logit_lens(model, batch)
    with torch.no_grad():
        assert torch.equal(list(found.values())[-1], run(model, batch))
    names = [name.removeprefix("decoder.") for name in found]
    assert names == ["layers.0.resid_in", "layers.0.resid_out", "layers.1.resid_out"]


def test_models_without_logits_of_tokens_are_refused():
    for preset, words in (("pointer_tiny", "more than a token"), ("gru_none", "no residual stream")):
        model = parts.model(preset)
        with pytest.raises(ConfigError, match=words):
            logit_lens(model, batch_of(model))
    with pytest.raises(ConfigError, match="linear"):
        attribution(parts.model("bert_tiny"), {"ids": torch.zeros(1, 3).long()}, torch.zeros(1, 3).long())
