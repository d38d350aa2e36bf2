import numpy as np
import pytest
import torch

from minitf.data.windows import TrainStream, TrainWindows, ValBatches, rows_per_part
from minitf.errors import ConfigError

TOKENS = np.arange(1000, dtype=np.uint16)  # each token tells its own place


def windows(seed=0, batch_size=6, seq_len=16, tokens=TOKENS):
    return TrainWindows(tokens, seq_len, batch_size, seed)


def test_targets_are_the_next_tokens():
    batch = windows().batch(3)
    assert batch["ids"].dtype == batch["targets"].dtype == torch.int64
    assert batch["ids"].shape == batch["targets"].shape == (6, 16)
    assert torch.equal(batch["targets"], batch["ids"] + 1)
    assert torch.equal(batch["ids"][:, 1:], batch["targets"][:, :-1])
    assert batch["n_scored"] == 6 * 16


def test_a_batch_depends_on_seed_and_step_only():
    steps = list(range(60))  # more than five epochs
    in_order = {step: windows().batch(step)["ids"] for step in steps}
    one_object = windows()
    for step in np.random.default_rng(0).permutation(steps).tolist() + steps:
        assert torch.equal(one_object.batch(step)["ids"], in_order[step])
    assert not torch.equal(windows(seed=1).batch(0)["ids"], in_order[0])


def test_rows_do_not_depend_on_the_batch_size():
    small, large = windows(batch_size=3), windows(batch_size=12)
    joined = torch.cat([small.batch(step)["ids"] for step in range(40)])
    assert torch.equal(joined, torch.cat([large.batch(step)["ids"] for step in range(10)]))


@pytest.mark.parametrize("n_micro", [1, 2, 3, 6])
def test_micro_batches_join_to_the_batch(n_micro):
    whole, data = windows().batch(9), windows()
    parts = [data.batch(9, micro, n_micro) for micro in range(n_micro)]
    for name in ("ids", "targets"):
        assert torch.equal(torch.cat([part[name] for part in parts]), whole[name])
    assert {part["n_scored"] for part in parts} == {whole["n_scored"]}


def test_unequal_micro_batches_are_refused():
    with pytest.raises(ConfigError, match=r"\(6\).* 4 "):
        windows().batch(0, 0, 4)


def test_an_epoch_reads_each_window_once_and_the_next_cuts_elsewhere():
    data = windows(batch_size=1)
    n = data.n_windows
    epochs = [torch.cat([data.batch(step)["ids"] for step in range(e * n, (e + 1) * n)]) for e in range(4)]
    for epoch in epochs:
        assert len(epoch.unique()) == epoch.numel()  # no token twice
        assert epoch.numel() > len(TOKENS) - 2 * 16  # and nearly all once
    assert len({int(epoch.min()) for epoch in epochs}) > 1
    assert len({tuple(epoch[:, 0].tolist()) for epoch in epochs}) == 4


@pytest.mark.parametrize("n", [17, 18, 31, 32, 33, 48])
def test_a_text_of_about_one_row(n):
    data = windows(tokens=TOKENS[:n], batch_size=50)
    batch = data.batch(0)
    assert torch.equal(batch["targets"], batch["ids"] + 1)
    assert int(batch["targets"].max()) == n - 1  # some offset reaches the very end, none goes beyond
    assert int(batch["ids"].min()) == 0


@pytest.mark.parametrize("n", [2, 16, 17, 18, 33, 100, 129])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_validation_scores_each_token_once(n, rows):
    batches = ValBatches(TOKENS[:n], 16, rows)
    ids = torch.cat([batch["ids"] for batch in batches])
    targets = torch.cat([batch["targets"] for batch in batches])
    assert len(list(batches)) == len(batches)
    assert all(len(batch["ids"]) <= rows for batch in batches)
    real = targets != -100
    assert targets[real].tolist() == list(range(1, n))  # every token but the first, which nothing precedes
    assert torch.equal(ids[real], targets[real] - 1)
    assert (ids[~real] == 0).all()
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_a_stream_can_start_later():
    data = windows()
    whole = list(TrainStream(data, n_steps=12, start_step=0, n_micro=2))
    rest = list(TrainStream(data, n_steps=12, start_step=5, n_micro=2))
    assert len(whole) == 24
    assert len(rest) == 14
    for a, b in zip(whole[10:], rest, strict=True):
        assert torch.equal(a["ids"], b["ids"])


@pytest.mark.parametrize(("n_micro", "world_size"), [(1, 2), (2, 1), (2, 3), (3, 2), (1, 6)])
def test_processes_share_out_the_batch_of_each_step(n_micro, world_size):
    streams = [TrainStream(windows(), 5, 1, n_micro, rank, world_size) for rank in range(world_size)]
    assert {len(stream) for stream in streams} == {5 * n_micro}
    rounds = list(zip(*streams, strict=True))  # what the processes do at the same time
    for step in range(1, 5):
        parts = [part for same_time in rounds[(step - 1) * n_micro : step * n_micro] for part in same_time]
        whole = windows().batch(step)
        for name in ("ids", "targets"):
            assert torch.equal(torch.cat([part[name] for part in parts]), whole[name])
        assert {part["n_scored"] for part in parts} == {whole["n_scored"]}


def test_a_batch_that_the_processes_cannot_share_equally_is_refused():
    for n_micro, world_size in [(1, 4), (2, 2), (1, 12)]:  # 12: more processes than rows
        with pytest.raises(ConfigError, match=rf"\(6\).* {n_micro} equal .* {world_size} processes.*data\.batch_size"):
            rows_per_part(6, n_micro, world_size)


@pytest.mark.parametrize("n", [17, 100, 129])
@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_processes_share_out_the_validation_split(n, world_size):
    shares = [list(ValBatches(TOKENS[:n], 16, 2, rank, world_size)) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1, "one with fewer batches would leave the others waiting"
    targets = torch.cat([batch["targets"].flatten() for share in shares for batch in share])
    assert sorted(targets[targets != -100].tolist()) == list(range(1, n))


def test_large_ids_survive():
    tokens = np.array([70_000, 1, 65_536, 2], dtype=np.uint32)
    assert windows(tokens=tokens, seq_len=3, batch_size=1).batch(0)["targets"].tolist() == [[1, 65_536, 2]]
