"""Rows of whole documents: packed and padded score the same tokens, and a model loses the same on each."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from minitf.commands.rehearse import hide_tokens
from minitf.config import build, compose
from minitf.data.document_rows import TrainDocuments, ValDocuments
from minitf.data.module import DataModule
from minitf.data.packing import Layout, best_fit
from minitf.data.text import Documents
from minitf.data.tokenizer import CharTokenizer
from minitf.data.windows import TrainStream
from minitf.errors import ConfigError
from minitf.positions import from_real, packed
from minitf.training.objective.masked_lm import MaskedLM

T = 16
BOS = 99


def documents(lengths, seed=0):
    """Ids of documents of these lengths, bos counted: each token but bos tells its own place in the text."""
    tokens = np.arange(100, 100 + sum(lengths), dtype=np.uint32)
    tokens[np.cumsum([0, *lengths[:-1]])] = BOS
    return tokens


LENGTHS = [*np.random.default_rng(0).integers(2, 24, size=60).tolist(), 40, 16, 17, 32, 5]
TOKENS = documents(LENGTHS)


def scored(batches):
    """Of each scored target: itself, and the row's tokens of its document up to it."""
    found = {}
    for batch in batches:
        for ids, targets, pos in zip(batch["ids"], batch["targets"], batch["pos"], strict=True):
            for t in torch.nonzero(targets != -100).flatten().tolist():
                own = (pos >> 32 == pos[t] >> 32) & (pos >= 0) & (pos <= pos[t])
                key = (int(ids[t]), int(targets[t]))
                assert key not in found
                found[key] = ids[own].tolist()
    return found


@pytest.mark.parametrize("is_packed", [True, False])
def test_each_token_but_the_first_is_scored_once_after_its_own_document(is_packed):
    found = scored(ValDocuments(Layout(TOKENS, BOS, T, is_packed), 3))
    assert sorted(found) == sorted(zip(TOKENS[:-1].tolist(), TOKENS[1:].tolist(), strict=True))
    starts = np.flatnonzero(TOKENS == BOS)
    for i, token in enumerate(TOKENS[:-1].tolist()):
        start = starts[starts <= i].max()
        begin = start + (i - start) // T * T  # of the piece
        assert found[token, int(TOKENS[i + 1])] == TOKENS[begin : i + 1].tolist()


def test_positions_are_those_of_packed_and_of_padded_rows():
    layout = Layout(TOKENS, BOS, T, packed=True)
    batch = ValDocuments(layout, layout.n_rows)[0]
    assert int(layout.counts.max()) > 2
    for row, pos in enumerate(batch["pos"]):
        lengths = layout.lengths[layout.order[layout.first[row] :][: layout.counts[row]]].tolist()
        assert torch.equal(pos, packed(lengths, T))
    batch = ValDocuments(Layout(TOKENS, BOS, T, packed=False), 4)[1]
    assert torch.equal(batch["pos"], from_real(batch["pos"] >= 0))
    assert (batch["ids"][batch["pos"] < 0] == 0).all()


def test_best_fit_fills_rows_and_keeps_to_their_size():
    rng = np.random.default_rng(1)
    for size in (1, 7, 16, 200):
        lengths = rng.integers(1, size + 1, size=300)
        row = best_fit(lengths, size)
        used = np.bincount(row, weights=lengths)
        assert used.max() <= size
        assert used.min() > 0
        assert (used <= size / 2).sum() <= 1  # two of them would have been put together
    assert best_fit(np.array([6, 5, 4, 3, 2]), 10).tolist() == [0, 1, 0, 1, 1]
    assert best_fit(np.array([2, 6, 5]), 10).tolist() == [0, 0, 1]  # where the least room is left


@pytest.mark.parametrize("is_packed", [True, False])
def test_training_is_a_function_of_seed_and_step(is_packed):
    layout = Layout(TOKENS, BOS, T, is_packed)
    data = TrainDocuments(layout, 6, seed=0)
    whole = {step: TrainDocuments(layout, 6, seed=0).batch(step) for step in (0, 3, 41)}
    for step in (41, 0, 3):
        for n_micro in (1, 2, 6):
            parts = [data.batch(step, micro, n_micro) for micro in range(n_micro)]
            for name in ("ids", "targets", "pos"):
                assert torch.equal(torch.cat([part[name] for part in parts]), whole[step][name])
            assert {part["n_scored"] for part in parts} == {int((whole[step]["targets"] != -100).sum())}
    assert not torch.equal(TrainDocuments(layout, 6, seed=1).batch(0)["ids"], whole[0]["ids"])
    one = TrainDocuments(layout, 1, seed=0)
    n = layout.n_rows
    epochs = [[one.batch(step)["ids"] for step in range(e * n, (e + 1) * n)] for e in range(2)]
    for epoch in epochs:
        tokens = torch.cat(epoch).flatten()
        assert sorted(tokens[tokens > BOS].tolist()) == sorted(t for t in TOKENS.tolist() if t > BOS)
    assert any(not torch.equal(a, b) for a, b in zip(*epochs, strict=True))
    shares = zip(TrainStream(data, 5, 2, 1, 0, 2), TrainStream(data, 5, 2, 1, 1, 2), strict=True)
    for step, share in enumerate(shares, 2):
        assert torch.equal(torch.cat([part["ids"] for part in share]), data.batch(step)["ids"])


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_processes_share_out_the_validation_split(world_size):
    layout = Layout(documents([7, 9, 30, 4, 2]), BOS, T, packed=False)
    shares = [ValDocuments(layout, 2, rank, world_size) for rank in range(world_size)]
    assert len({len(list(share)) for share in shares}) == 1
    assert len(scored(batch for share in shares for batch in share)) == len(layout.tokens) - 1
    places = torch.cat([share.places(i).flatten() for share in shares for i in range(len(share))])
    assert sorted(places[places >= 0].tolist()) == list(range(len(layout.tokens)))


TEXTS = [f"{'ab' * (i % 7)}c{'d e' * (i % 5)}\n" for i in range(40)]


class Given:
    name = "given"

    def documents(self):
        return Documents(TEXTS, TEXTS[:25], {"source": self.name}, [str(i) for i in range(25)])


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))

    def make(rows, special=("bos",), batch_size=4, seq_len=T):
        return DataModule(Given(), CharTokenizer(special), seq_len, batch_size, 0, rows=rows).prepare(lines.append)

    lines = make.lines = []
    return make


def losses(model, batches, scored_once):
    """Summed loss of each scored token of each document, in the order of the text."""
    found = {}
    with torch.no_grad():
        for index, batch in enumerate(batches):
            nll = F.cross_entropy(
                model(batch["ids"], batch["pos"]).transpose(1, 2), batch["targets"], ignore_index=-100, reduction="none"
            )
            places = scored_once.places(index)
            for at in torch.nonzero(batch["targets"] != -100).tolist():
                place = int(places[tuple(at)])
                assert place not in found
                found[place] = float(nll[tuple(at)])
    return np.array([found[place] for place in sorted(found)]), sorted(found)


CHANGES = [
    *[[f"model/position={p}"] for p in ("learned", "sinusoidal", "rope", "alibi", "relative_bias", "none")],
    *[[f"model/mask={m}"] for m in ("sliding_window", "window_sinks", "strided", "causal_bigbird")],
    *[[f"model/attention/projection={p}"] for p in ("mean", "smeared")],
    ["model/ffn=moe"],
]


@pytest.mark.parametrize("changes", CHANGES, ids=" ".join)
def test_packed_and_padded_rows_have_the_same_loss_per_token(made, changes):
    data = {rows: made(rows) for rows in ("packed", "padded")}
    torch.manual_seed(0)
    sizes = [f"model.{k}={v}" for k, v in {"d_model": 32, "n_layers": 2, "max_len": T}.items()]
    cfg = compose("model/gpt_tiny", [*changes, *sizes, f"model.vocab_size={data['packed'].vocab_size}"])
    model = build(cfg.model).double().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    found = {rows: losses(model, d.val_batches(), d.val_batches()) for rows, d in data.items()}
    assert found["packed"][1] == found["padded"][1] == list(range(data["packed"].n_val_tokens - 1))
    np.testing.assert_allclose(found["packed"][0], found["padded"][0], atol=1e-9)
    assert len(data["packed"].val_batches()) < len(data["padded"].val_batches())


def test_masked_lm_hides_the_same_tokens_packed_or_padded(made):
    special = ("bos", "mask")
    seen = {}
    for rows, batch_size in [("packed", 4), ("padded", 4), ("padded", 2)]:
        data = made(rows, special, batch_size)
        data.look_through(hide_tokens(data.tokenizer, MaskedLM(rate=0.3)))
        batches = data.val_batches()
        found = {}
        for i, batch in enumerate(batches):
            places = batches.places(i)
            for at in torch.nonzero(places >= 0).tolist():
                found[int(places[tuple(at)])] = (int(batch["ids"][tuple(at)]), int(batch["targets"][tuple(at)]))
        assert len(found) == data.n_val_tokens
        seen[rows, batch_size] = found
        hidden = [ids for ids, target in found.values() if target != -100]
        assert 0.2 < len(hidden) / len(found) < 0.4
        assert data.tokenizer.mask_id in hidden
        assert data.tokenizer.bos_id not in [target for _, target in found.values()]
        step = data.train_batch(5)
        assert step["n_scored"] == int((step["targets"] != -100).sum()) > 0
        assert torch.equal(data.train_batch(5, 1, 2)["ids"], step["ids"][batch_size // 2 :])
        assert (step["targets"][step["pos"] < 0] == -100).all()
        documents = {(r, int(p) >> 32) for r, pos in enumerate(step["pos"]) for p in pos if p >= 0}
        asked = {(r, int(step["pos"][r, t]) >> 32) for r, t in torch.nonzero(step["targets"] != -100).tolist()}
        assert asked == documents  # each document has its own share of hidden tokens
    assert seen["packed", 4] == seen["padded", 4] == seen["padded", 2]


def test_the_record_tells_what_packing_saves(made):
    data = {rows: made(rows, seq_len=64) for rows in ("packed", "padded")}
    record, alone = data["packed"].record, data["padded"].record
    n = data["packed"].n_train_tokens
    assert (record["rows"], alone["rows"]) == ("packed", "padded")
    assert alone["train_rows"] == len(TEXTS)  # no document is longer than a row
    assert alone["train_fill"] == round(n / len(TEXTS) / 64, 4) < 0.5
    assert record["train_fill"] == round(n / record["train_rows"] / 64, 4) > 0.9
    told = " ".join(made.lines)
    assert f"(padded: {n / len(TEXTS) / 64:.1%})" in told
    real = torch.cat([(batch["pos"] >= 0).flatten() for batch in data["padded"].val_batches()])
    assert abs(real.double().mean().item() - alone["val_fill"]) < 1e-4


def test_other_rows_are_refused(made):
    with pytest.raises(ConfigError, match=r"data\.rows \('pack'\) must be one of stream, packed, padded"):
        made("pack")
