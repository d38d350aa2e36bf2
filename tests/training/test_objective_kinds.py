"""Masked LM, sequence to sequence, pointer, classification, tagging: what they score, against torch's cross_entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_stubs import TinyDecoder

from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.errors import ConfigError
from minitf.models.head.classify import ClassifierHead
from minitf.models.head.lm import LMHead
from minitf.models.head.pointer import PointerHead
from minitf.models.head.pool.mean import MeanPool
from minitf.models.head.tag import TokenHead
from minitf.training.objective.answer import Answer
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.objective.classify import Classify
from minitf.training.objective.masked_lm import MaskedLM
from minitf.training.objective.pointer import Pointer
from minitf.training.objective.seq2seq import Seq2Seq
from minitf.training.objective.tag import TagTokens

V, D, B, T, S = 11, 8, 4, 6, 5


def lm():
    return LMHead(d_model=D, vocab_size=V, tied_to=None)


def tagger():
    return TokenHead(d_model=D, n_classes=V)


def classifier(n_classes):
    return ClassifierHead(d_model=D, n_classes=n_classes, pool=MeanPool)


def pointer():
    return PointerHead(d_model=D, score=ScaledDot)


class Tagger(nn.Module):
    """Tokens to hidden states, each by itself, and a head."""

    sees_future = True

    def __init__(self, head):
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, D), head

    def hidden(self, ids, pos=None):
        return torch.tanh(self.embedding(ids))


class Translator(Tagger):
    """The same after the mean of a source."""

    sees_future = False

    def encode(self, src, src_pos=None):
        return torch.tanh(self.embedding(src))

    def hidden(self, ids, pos=None, memory=None, memory_pos=None, caches=None):
        real = torch.ones(memory.shape[:2]) if memory_pos is None else (memory_pos >= 0).float()
        return torch.tanh(self.embedding(ids) + (memory * real[..., None]).sum(1, keepdim=True) / S)


def case(name):
    """An objective, a model for it, a batch of which some is not scored, the scored logits and targets."""
    torch.manual_seed(0)
    ids, targets = torch.randint(V, (2, B, T))
    targets[0, 2:] = -100
    scored = targets != -100
    src_pos = torch.arange(S).repeat(B, 1)
    src_pos[1, 3:] = -1
    source = {"src": torch.randint(V, (B, S)), "src_pos": src_pos}
    if name == "classify":
        model = Tagger(classifier(4))
        batch = {"ids": ids, "label": torch.tensor([2, -100, 0, 1])}
        logits = model.head(model.hidden(ids), None)
        return Classify(), model, batch, logits[[0, 2, 3]], batch["label"][[0, 2, 3]]
    if name == "pointer":
        model = Translator(pointer())
        batch = {"ids": ids, "targets": torch.where(scored, targets % 3, -100), **source}
        memory = model.encode(batch["src"])
        logits = model.head(model.hidden(ids, memory=memory, memory_pos=src_pos), memory, src_pos)
        return Pointer(), model, batch, logits[scored], batch["targets"][scored]
    objective = {"masked_lm": MaskedLM(), "seq2seq": Seq2Seq(), "tag": TagTokens(), "answer": Answer()}.get(name)
    if name == "readouts":  # three of them, each with four classes
        model = Tagger(TokenHead(d_model=D, n_classes=12))
        batch = {"ids": ids, "targets": torch.where(scored, targets % 4, -100)[..., None].repeat(1, 1, 3)}
        batch["targets"][:, :, 1] = ids % 4
        logits = model.head(model.hidden(ids)).view(B, T, 3, 4)
        return TagTokens(), model, batch, logits[batch["targets"] != -100], batch["targets"][batch["targets"] != -100]
    model = (Translator if name == "seq2seq" else Tagger)(tagger() if name == "tag" else lm())
    batch = {"ids": ids, "targets": targets, **(source if name == "seq2seq" else {})}
    model.sees_future = name not in ("answer", "seq2seq")
    read = {} if name != "seq2seq" else {"memory": model.encode(batch["src"]), "memory_pos": src_pos}
    return objective, model, batch, model.head(model.hidden(ids, **read))[scored], targets[scored]


KINDS = ["masked_lm", "answer", "seq2seq", "pointer", "classify", "tag", "readouts"]


def run(objective, model, batch):
    model.zero_grad()
    loss, metrics = objective(model, batch)
    loss.backward()
    return loss.detach(), metrics, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_is_the_cross_entropy_of_the_scored_rows(name):
    objective, model, batch, logits, targets = case(name)
    objective.check(model)
    loss, metrics = objective(model, batch)
    torch.testing.assert_close(loss, F.cross_entropy(logits, targets))
    torch.testing.assert_close(metrics["nll"], F.cross_entropy(logits, targets, reduction="sum"))
    assert not metrics["nll"].requires_grad
    assert metrics["n_scored"] == len(targets)
    assert metrics["n_correct"] == (logits.argmax(-1) == targets).sum()


@pytest.mark.parametrize("name", KINDS)
def test_nothing_scored_costs_nothing(name):
    objective, model, batch, *_ = case(name)
    batch["label" if name == "classify" else "targets"].fill_(-100)
    loss, metrics, gradients = run(objective, model, batch)
    assert loss == 0
    assert metrics["n_scored"] == metrics["nll"] == metrics["n_correct"] == 0
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("name", KINDS)
def test_micro_batches_weighted_by_what_they_score_add_up(name):
    objective, model, batch, *_ = case(name)
    loss, metrics, gradients = run(objective, model, batch)
    parts = [run(objective, model, {k: v[rows] for k, v in batch.items()}) for rows in (slice(1), slice(1, B))]
    shares = [part["n_scored"] / metrics["n_scored"] for _, part, _ in parts]
    assert sum(shares) == 1
    assert shares[0] != shares[1]
    torch.testing.assert_close(sum(s * part for s, (part, _, _) in zip(shares, parts, strict=True)), loss)
    for i, whole in enumerate(gradients):
        torch.testing.assert_close(sum(s * g[i] for s, (_, _, g) in zip(shares, parts, strict=True)), whole)
    assert sum(part["n_correct"] for _, part, _ in parts) == metrics["n_correct"]


@pytest.mark.parametrize("chunk_rows", [1, 4, 1000])
@pytest.mark.parametrize("name", ["masked_lm", "seq2seq"])
def test_chunks_change_nothing(name, chunk_rows):
    objective, model, batch, *_ = case(name)
    objective.label_smoothing = 0.1  # of seq2seq
    loss, metrics, gradients = run(objective, model, batch)
    objective.chunk_rows = chunk_rows
    chunked_loss, chunked_metrics, chunked_gradients = run(objective, model, batch)
    torch.testing.assert_close(chunked_loss, loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(chunked_metrics, metrics, rtol=1e-6, atol=0)
    torch.testing.assert_close(chunked_gradients, gradients, rtol=1e-5, atol=1e-7)


class Given(nn.Module):
    """A model whose logits are given."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def encode(self, src, src_pos=None):
        return src

    def hidden(self, ids, pos=None, memory=None, memory_pos=None):
        return self.logits[None]

    def head(self, hidden):
        return hidden


@pytest.mark.parametrize("objective", [kind(label_smoothing=0.1) for kind in (Seq2Seq, CausalLM, TagTokens)])
def test_label_smoothing_knows_real_tokens_only(objective):
    rows = [[2.0, 0, 0, 0], [0, 1, 0, 0], [5, 5, 5, 5]]
    src = torch.zeros(1, 1, dtype=torch.long)
    batch = {"src": src, "ids": src, "targets": torch.tensor([[0, 1, -100]])}
    loss, metrics, gradients = run(objective, model := Given(rows), batch)
    assert loss.item() == pytest.approx(0.654711, abs=5e-7)
    scored, targets = model.logits[:2], torch.tensor([0, 1])
    torch.testing.assert_close(loss, F.cross_entropy(scored, targets, label_smoothing=0.1).detach())
    torch.testing.assert_close(metrics["nll"], F.cross_entropy(scored, targets, reduction="sum").detach())
    assert (gradients[0][2] == 0).all()
    without, _, _ = run(objective, Given(rows[:2]), {**batch, "targets": batch["targets"][:, :2]})
    assert without.item() == pytest.approx(loss.item(), abs=1e-7)


def test_label_smoothing_of_tags_stays_within_a_read_out():
    _, model, batch, logits, targets = case("readouts")
    loss, metrics = TagTokens(label_smoothing=0.1)(model, batch)
    torch.testing.assert_close(loss, F.cross_entropy(logits, targets, label_smoothing=0.1))
    torch.testing.assert_close(metrics["nll"], F.cross_entropy(logits, targets, reduction="sum").detach())


def test_extra_losses_of_parts_count_while_training_and_where_something_is_scored():
    model = TinyDecoder()
    ids = torch.randint(V, (2, T))
    batch = {"ids": ids, "targets": ids}
    plain, metrics = CausalLM()(model, batch)
    weight = model.up.weight
    model.up.aux_loss, model.norm.aux_loss, model.down.aux_loss = 0.5 * weight.sum(), torch.tensor(0.25), None
    loss, with_extra, _ = run(CausalLM(), model, batch)
    torch.testing.assert_close(loss, (plain + 0.5 * weight.sum() + 0.25).detach())
    assert with_extra["nll"] == metrics["nll"]
    model.up.aux_loss = 0.5 * weight.sum()
    nothing, _, gradients = run(CausalLM(), model, {"ids": ids, "targets": torch.full_like(ids, -100)})
    assert nothing == 0
    assert all((g == 0).all() for g in gradients)
    assert CausalLM()(model.eval(), batch)[0] == plain


REFUSED = [
    (Seq2Seq(), Tagger(lm()), "task=seq2seq gives the model a source to read, but Tagger has none: use model=encdec"),
    (CausalLM(), Translator(lm()), "task=causal_lm gives the model one row of tokens, but Translator reads a source"),
    (CausalLM(), Translator(lm()), "use model=gpt_tiny or llama_tiny, or task=seq2seq"),
    (Classify(), Tagger(lm()), "task=classify cannot use what LMHead gives: use model/head=classify"),
    (TagTokens(), Tagger(classifier(4)), "task=tag cannot use what ClassifierHead gives: use model/head=tag"),
    (Pointer(), Translator(lm()), "task=pointer cannot use what LMHead gives: use model/head=pointer"),
    (Seq2Seq(), Translator(pointer()), "task=seq2seq cannot use what PointerHead gives: use model/head=lm"),
    (MaskedLM(), Tagger(tagger()), "task=masked_lm cannot use what TokenHead gives: use model/head=masked_lm"),
    (CausalLM(), Tagger(lm()), "the model's mask shows it: use model/mask=causal or model/mask=sliding_window"),
]


@pytest.mark.parametrize(("objective", "model", "message"), REFUSED)
def test_a_model_that_does_not_fit_is_refused_with_a_way_out(objective, model, message):
    with pytest.raises(ConfigError, match=message):
        objective.check(model)


def test_a_head_of_somebody_else_is_taken_at_its_word():
    Classify().check(Tagger(nn.Linear(D, 4)))


@pytest.mark.parametrize("objective", [CausalLM, Seq2Seq, MaskedLM])
def test_chunk_rows_is_at_least_1(objective):
    with pytest.raises(ConfigError, match=r"chunk_rows \(0\)"):
        objective(chunk_rows=0)
