import parts
import pytest
import torch

from minitf.analysis.forward import run
from minitf.analysis.intervene.ablate import ablate, ablation_effect, head_means
from minitf.analysis.intervene.choice import all_heads, editable, grouped, heads_named, random_sets
from minitf.analysis.intervene.pruning import pruning_curve, smallest_set
from minitf.analysis.scores import accuracy, mean_loss
from minitf.analysis.sites import sites
from minitf.errors import ConfigError, DataError
from minitf.tap import Tap


def batch_of(model, rows=4, length=10, seed=1):
    torch.manual_seed(seed)
    batch = {"ids": torch.randint(31, (rows, length)), "targets": torch.randint(31, (rows, length))}
    if hasattr(model, "encode"):
        batch["src"] = torch.randint(31, (rows, 7))
    return batch


ATTENDING = [name for name in parts.options("model") if name not in ("gru_none", "bahdanau", "luong")]


@pytest.mark.parametrize("preset", ATTENDING)
def test_a_head_that_is_zero_equals_zeros_in_its_rows_of_w_o(preset):
    model = parts.model(preset, scale=4)
    batch = batch_of(model)
    for site in sites(model):
        with torch.no_grad(), ablate(model, {site: [1, 2]}):
            switched_off = run(model, batch)
        w_o = model.get_submodule(site.prefix).projection.by_head()["w_o"]
        kept = w_o.detach().clone()
        with torch.no_grad():
            w_o[1:3] = 0
            by_weights = run(model, batch)
            w_o.copy_(kept)
            assert not torch.allclose(switched_off, run(model, batch), atol=1e-4), site
        assert torch.allclose(switched_off, by_weights, atol=1e-5), site


def test_the_mean_is_that_of_all_real_tokens_and_stands_in_for_the_head():
    model = parts.model("llama_tiny", scale=4)
    batches = [batch_of(model) | {"pos": parts.padded([10, 4, 7, 1], "right")}, batch_of(model, rows=1, seed=2)]
    site = sites(model)[1]
    with torch.no_grad():
        read = []
        for batch in batches:
            with Tap(model, at=site.point("heads")) as tap:
                run(model, batch)
            real = batch.get("pos", torch.zeros(1, 10)) >= 0
            read += [tap[site.point("heads")][b, :, t] for b, t in real.nonzero().tolist()]
        mean = torch.stack(read).mean(0)
        means = head_means(model, batches)
        assert torch.allclose(means[site], mean, atol=1e-6)

        def by_hand(value):
            value = value.clone()
            value[:, 2] = mean[2]
            return value

        with Tap(model, edit={site.point("heads"): by_hand}):
            expected = run(model, batches[0])
        with ablate(model, {site: [2]}, "mean", means=means):
            assert torch.allclose(run(model, batches[0]), expected, atol=1e-5)


def test_resampling_takes_each_row_from_another_one():
    model = parts.model("gpt_tiny", scale=4)
    site, batch = sites(model)[0], batch_of(model, rows=5)
    with torch.no_grad(), Tap(model, at=site.point("heads")) as tap:
        run(model, batch)
        own = tap[site.point("heads")]
        with ablate(model, {site: [0, 3]}, "resample", seed=3), Tap(model, at=site.point("heads")) as inner:
            run(model, batch)
        new = inner[site.point("heads")]
    assert torch.equal(new[:, 1:3], own[:, 1:3])
    sources = [[i for i in range(5) if torch.equal(row[[0, 3]], own[i][[0, 3]])] for row in new]
    assert sorted(source for (source,) in sources) == [0, 1, 2, 3, 4]
    assert all(source != i for i, (source,) in enumerate(sources))
    with pytest.raises(ConfigError, match="2 rows or more"), ablate(model, {site: [0]}, "resample"):
        run(model, batch_of(model, rows=1))


def test_heads_go_by_names_and_others_are_refused():
    model = parts.model("encdec_tiny")
    found = heads_named(model, ["cross 1.0", "cross 1.3", "encoder 0.2"])
    assert {site.prefix: heads for site, heads in found.items()} == {
        "decoder.layers.1.cross_attention": [0, 3],
        "encoder.layers.0.attention": [2],
    }
    with pytest.raises(ConfigError, match=r"no head '1.0'.*cross 1.0"):
        heads_named(model, ["1.0"])
    (site, _), *_ = all_heads(model)
    with pytest.raises(ConfigError, match=r"no head encoder 0.4.*heads 0 to 3"):
        ablate(model, {site: [4]})
    with pytest.raises(ConfigError, match="zero, mean, resample"):
        ablate(model, {site: [0]}, "median")
    with pytest.raises(ConfigError, match="head_means"):
        ablate(model, {site: [0]}, "mean")
    assert editable(parts.model("bahdanau")) == []


def test_an_effect_comes_with_random_sets_of_the_same_size():
    model = parts.model("gpt_tiny", scale=4)
    batches = [batch_of(model)]
    heads = all_heads(model)
    chosen = heads[:3]
    effect = ablation_effect(model, lambda m: -mean_loss(m, batches), grouped(chosen), n_controls=4, seed=1)
    assert effect.full == pytest.approx(-mean_loss(model, batches))
    sets = random_sets(heads[3:], 3, 4, seed=1)
    for one, value in zip(sets, effect.controls, strict=True):
        assert not set(one) & set(chosen)
        with ablate(model, grouped(one)):
            assert value == pytest.approx(-mean_loss(model, batches))
    assert effect.control == pytest.approx(effect.full - sum(effect.controls) / 4)
    with pytest.raises(ConfigError, match="cannot be drawn from the 2"):
        ablation_effect(model, lambda m: 0.0, grouped(chosen), pool=heads[:5])


def test_scores_count_answers_not_batches():
    model = parts.model("gpt_tiny", scale=4)
    batch = batch_of(model)
    batch["targets"][0] = -100
    cut = [{k: v[:1] for k, v in batch.items()}, {k: v[1:] for k, v in batch.items()}]
    assert accuracy(model, cut) == accuracy(model, [batch])
    assert mean_loss(model, cut) == pytest.approx(mean_loss(model, [batch]))
    with pytest.raises(DataError, match="ask nothing"):
        accuracy(model, cut[:1])


def counting(model, worth):
    """A score that only counts which heads are there: head (layer, h) is worth its number."""

    def score(_):
        there = 0.0
        for site in sites(model):
            ones = torch.ones(1, site.n_heads, 1, 1)
            listener = model.get_submodule(site.prefix).tap
            left = ones if listener is None else listener("heads", ones)
            there += sum(worth[site.layer][h] for h in range(site.n_heads) if left[0, h, 0, 0] > 0)
        return there

    return score


def test_the_curve_runs_from_the_whole_model_to_none_of_its_heads():
    model = parts.model("gpt_tiny")
    worth = [[5, 1, 2, 8], [3, 7, 4, 6]]
    importance = {site: torch.tensor(worth[site.layer]).float() for site in sites(model)}
    curve = pruning_curve(model, counting(model, worth), importance, n_random=2)
    assert curve.removed == tuple(range(9))
    assert curve.by_importance == (36, 35, 33, 30, 26, 21, 15, 8, 0), "the least important go first"
    for random in curve.random:
        assert (random[0], random[-1]) == (36, 0)
        assert all(r <= b for r, b in zip(random, curve.by_importance, strict=True))
    assert curve.random[0] != curve.random[1]
    real = [batch_of(model)]
    ends = pruning_curve(model, lambda m: mean_loss(m, real), importance, steps=[0, 8], n_random=1)
    with ablate(model, grouped(all_heads(model))):
        assert ends.by_importance[1] == ends.random[0][1] == mean_loss(model, real)
    assert ends.by_importance[0] == mean_loss(model, real)
    with pytest.raises(ConfigError, match="9 heads cannot be removed"):
        pruning_curve(model, counting(model, worth), importance, steps=[9])


def test_the_smallest_set_keeps_the_share_and_no_head_too_many():
    model = parts.model("gpt_tiny")
    worth = [[50, 0, 0, 1], [0, 45, 2, 2]]
    found = smallest_set(model, counting(model, worth), share=0.9, n_controls=3)
    assert {(site.layer, head) for site, head in found.heads} == {(0, 0), (1, 1)}
    assert (found.score, found.full) == (95, 100)
    assert len(found.controls) == 3
    assert all(value <= 95 for value in found.controls)
    # above a chance of 90, 5 of 10 are too few
    assert len(smallest_set(model, counting(model, worth), share=0.9, chance=90, n_controls=0).heads) == 4
    with pytest.raises(ConfigError, match="no better than chance"):
        smallest_set(model, counting(model, worth), chance=100)
