"""Rows that are right as a whole: counted over any cut of the split, and the same rows that greedy decoding writes."""

import functools

import pytest
import torch
from training_stubs import MUON, Batches, Fixed, TinyDecoder, fit, history

from minitf.config import build, build_data, compose, set_data_facts
from minitf.data.arrays import ValRows
from minitf.errors import DataError
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy
from minitf.training import schedule
from minitf.training.objective import exact_match
from minitf.training.objective.answer import Answer
from minitf.training.objective.seq2seq import Seq2Seq
from minitf.training.optim import adamw
from minitf.training.scores import scores
from minitf.training.task import Task

X = -100


def counts(found):
    return [int(found[name]) for name in ("n_correct", "n_rows", "n_exact")]


def test_a_row_is_exact_if_all_that_is_scored_in_it_is_right():
    targets = torch.tensor([[1, 2, 3], [1, X, 3], [X, X, X], [4, 5, X]])
    right = torch.tensor([[True, True, True], [True, False, False], [False] * 3, [True, True, False]])
    assert counts(exact_match(right, targets)) == [6, 3, 2]
    assert counts(exact_match(right.flatten(), targets)) == [6, 3, 2]
    several = torch.stack([targets, targets], -1)  # two read-outs, of which the second is wrong in the first row
    both = torch.stack([right, right & (targets != 3)], -1)
    assert counts(exact_match(both, several)) == [11, 3, 1]


def test_scores_are_sums_over_sums():
    total = {"nll": 6.0, "n_scored": 4, "n_correct": 3, "n_rows": 2, "n_exact": 1}
    assert scores(total) == {"loss": 1.5, "accuracy": 0.75, "exact": 0.5}
    assert "exact" not in scores({"nll": 6.0, "n_scored": 4, "n_correct": 3})
    with pytest.raises(DataError):
        scores({"nll": 0.0, "n_scored": 0})


def answers(rows=7):
    """Rows with one to three scored places."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, 11, (rows, 6), generator=generator)
    targets = torch.full_like(ids, X)
    for i in range(rows):
        targets[i, : 1 + i % 3] = torch.randint(0, 11, (1 + i % 3,), generator=generator)
    return ids, targets


class Copies(TinyDecoder):
    """Answers with the token that it sees; what is learned is too little to matter."""

    def hidden(self, ids, pos=None):
        return super().hidden(ids) * 1e-6 + torch.nn.functional.one_hot(ids, 11)[..., :8] * 9.0

    def head(self, hidden):
        return torch.nn.functional.pad(hidden, (0, 3))


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_validation_counts_rows_of_the_split_and_takes_no_mean_of_batches(tmp_path, batch_size):
    ids, targets = answers()
    ids = ids.clamp(max=7)
    first = torch.tensor([0, 1, 6])  # these rows are answered rightly, of which the last batch of 3 holds one alone
    targets[first] = torch.where(targets[first] == X, X, ids[first])
    batches = [{"ids": i, "targets": t} for i, t in zip(ids.split(batch_size), targets.split(batch_size), strict=True)]
    copied = (ids == targets) | (targets == X)
    whole = copied.all(1).float().mean().item()
    task = Task(Copies(), Answer(), functools.partial(adamw, lr=1e-9), schedule.constant, seed=0, log_every=1)
    fit(task, tmp_path, Batches(1), max_steps=1, val=Fixed(*batches))
    assert 0 < whole < 1
    assert history(tmp_path, "val/exact")[1] == pytest.approx(whole)
    assert history(tmp_path, "val/accuracy")[1] == pytest.approx(((ids == targets).sum() / (targets != X).sum()).item())
    means = [copied[i : i + batch_size].all(1).float().mean().item() for i in range(0, 7, batch_size)]
    assert batch_size != 3 or sum(means) / len(means) != pytest.approx(whole), "the wrong way would pass as well"


def test_processes_whose_shares_do_not_come_out_even_count_each_row_once():
    ids, targets = (t.numpy() for t in answers(5))
    shares = [list(ValRows({"ids": ids, "targets": targets}, 2, rank, 2)) for rank in (0, 1)]
    assert [len(share) for share in shares] == [2, 2]  # 2 + 1 rows, 2 rows + one that is not scored
    found = [exact_match(b["targets"] != X, b["targets"]) for share in shares for b in share]
    assert sum(int(f["n_rows"]) for f in found) == sum(int(f["n_exact"]) for f in found) == 5


@pytest.mark.slow
def test_teacher_forced_exact_match_is_that_of_greedy_decoding(tmp_path):
    sizes = ["data.seq_len=6", "data.task.n_symbols=4", "data.n_val=64", "model.d_model=32"]
    cfg = compose("train", ["data=reverse", "model=encdec_tiny", "task=seq2seq", *sizes])
    data = build_data(cfg).prepare(lambda line: None)
    set_data_facts(cfg, **data.facts)
    model, objective = build(cfg.model), Seq2Seq()
    task = Task(model, objective, MUON, schedule.constant, seed=0, log_every=1000)
    data.plan(150)
    fit(task, tmp_path, data.train_stream(150), max_steps=150, val=data.val_batches(), checkpoint=False)
    model.eval()
    batch = next(iter(ValRows(data._val, 64)))
    with torch.no_grad():
        memory = model.encode(batch["src"], batch["src_pos"])
        hidden = model.hidden(batch["ids"], batch["pos"], memory=memory, memory_pos=batch["src_pos"])
        right = (model.head(hidden).argmax(-1) == batch["targets"]) | (batch["targets"] == X)
        forced = right.all(1).tolist()
        _, metrics = objective(model, batch)
    steps = generate(
        model, batch["ids"][:, :1], memory=memory, memory_pos=batch["src_pos"], sampler=Greedy(), max_new_tokens=8
    )
    written = torch.stack([step.ids for step in steps], 1)
    wanted = batch["targets"][:, :8]
    same = ((written[:, : wanted.size(1)] == wanted) | (wanted == X)).all(1).tolist()
    assert 5 < sum(forced) < 60, "nothing, or everything, is right: the comparison says little"
    assert same == forced
    assert metrics["n_exact"] == sum(forced)
