"""Runs of several seeds side by side."""

import json

import pytest
from runs import train_here

from minitf.commands.analyze import analyze, other_runs
from minitf.config import compose
from minitf.errors import ConfigError

SHORT = ["data=look_back", "model=bert_tiny", "task=tag", "model/head=tag", "model.n_layers=1", "model.d_model=32"]
SHORT += ["trainer.max_steps=4", "trainer.val_every=4", "schedule.warmup_steps=1", "data.n_val=24"]
FEW = ["n=24", "untrained=1", "shuffles=2", "draws=1", "examples=1", "figures=false"]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    base = tmp_path_factory.mktemp("seeds")
    return [train_here(base / f"s{seed}", [*SHORT, f"seed={seed}"]) for seed in range(3)]


def test_owners_names_and_matched_heads_of_three_runs(three):
    raw = {"run": str(three[0]), "others": f"{three[1]}, {three[0].parent}/s[2]"}
    text = analyze(compose("analyze", FEW), raw, [], "")
    found = json.loads((three[0] / "analysis" / "seeds.json").read_text(encoding="utf-8"))
    assert found["runs"] == [str(folder) for folder in three]
    alone = [json.loads((three[0] / "analysis" / "heads.json").read_text(encoding="utf-8"))]
    for folder in three[1:]:
        analyze(compose("analyze", FEW), {"run": str(folder)}, [], "")
        alone.append(json.loads((folder / "analysis" / "heads.json").read_text(encoding="utf-8")))
    for role in ("back_1", "back_4"):
        for owners, one in zip(found["owners"], alone, strict=True):
            lost = {place: effect["lost"][role] for place, effect in one["effects"].items()}
            assert lost[owners[role]] == max(lost.values())
    # matching to itself changes nothing, and matched scores are those of some head of the same run
    back = next(role for role in found["stability"] if role["role"] == "back_2")
    own = [[head["scores"]["mass:back_2"] for head in one["heads"]] for one in alone]
    assert [row[0] for row in back["matched"]] == pytest.approx(own[0])
    for i in (1, 2):
        assert sorted(row[i] for row in back["matched"]) == pytest.approx(sorted(own[i]))
    assert "4 roles are owned by" in text


def test_other_models_and_missing_runs_are_refused(three, tmp_path):
    other = train_here(tmp_path / "other", [*SHORT, "model.attention.n_heads=2"])
    with pytest.raises(ConfigError, match="has other heads than"):
        analyze(compose("analyze", FEW), {"run": str(three[0]), "others": str(other)}, [], "")
    with pytest.raises(ConfigError, match=r"others: there is no .*none\*"):
        other_runs(f"{tmp_path}/none*", three[0])
    with pytest.raises(ConfigError, match="nowhere"):
        analyze(compose("analyze", FEW), {"run": str(three[0]), "others": "nowhere"}, [], "")


def test_a_run_stands_beside_itself_never(three):
    found = other_runs(f"{three[0].parent}/s*", three[0])
    assert found == [str(three[1]), str(three[2])]
    assert other_runs(f"{three[1]}, {three[0].parent}/s*", three[0]) == found
    with pytest.raises(ConfigError, match="is there already"):
        other_runs(f"{three[0]}", three[0])
    with pytest.raises(ConfigError, match="is there already"):
        other_runs(f"{three[1]},{three[1]}", three[0])
