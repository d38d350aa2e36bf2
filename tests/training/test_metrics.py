import json

import pytest
import torch

from minitf.errors import DataError
from minitf.training.metrics import MetricsCsv, read_metrics
from minitf.training.status import Status, read_status
from minitf.training.throughput import Throughput, n_tokens


def test_training_and_validation_rows_share_the_step_axis(tmp_path):
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"train/loss": 1.5, "train/lr": 0.1}, step=5)
    logger.log_metrics({"val/loss": 1.25}, step=5)
    logger.log_metrics({"train/loss": 1 / 3, "train/lr": 0.1}, step=10)
    # the file is still open: a row is there when the call returns, so that a kill loses none
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines == ["step,train/loss,train/lr,val/loss", "5,1.5,0.1,", "5,,,1.25", "10,0.3333333333333333,0.1,"]
    assert read_metrics(tmp_path)[1:] == [
        {"step": 5, "val/loss": 1.25},
        {"step": 10, "train/loss": 1 / 3, "train/lr": 0.1},
    ]


def test_a_file_that_is_there_is_continued_and_can_be_cut(tmp_path):
    first = MetricsCsv(tmp_path)
    for step in (1, 2, 3):
        first.log_metrics({"a": float(step)}, step=step)
    first.finalize("success")
    second = MetricsCsv(tmp_path)
    second.cut(2)
    second.log_metrics({"b": 7.0}, step=3)
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1}, {"step": 2, "a": 2}, {"step": 3, "b": 7}]


def test_a_line_cut_short_by_a_kill_is_dropped(tmp_path):
    MetricsCsv(tmp_path).log_metrics({"a": 1.0}, step=1)
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("2,0.12")
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1}]
    MetricsCsv(tmp_path).log_metrics({"a": 3.0}, step=2)
    assert read_metrics(tmp_path) == [{"step": 1, "a": 1}, {"step": 2, "a": 3}]


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text("epoch,loss\n1,2\n")
    with pytest.raises(DataError, match="first column is not 'step'"):
        MetricsCsv(tmp_path)


def test_status_tells_how_a_run_stands(tmp_path):
    assert read_status(tmp_path) is None
    status = Status(tmp_path)
    status.running()
    assert read_status(tmp_path) | {"started": ""} == {
        "status": "running",
        "reason": None,
        "step": 0,
        "started": "",
        "ended": None,
    }
    status.interrupted("SIGTERM", step=7)
    now = read_status(tmp_path)
    assert (now["status"], now["reason"], now["step"]) == ("interrupted", "SIGTERM", 7)
    assert now["ended"] >= now["started"]
    status.running(step=7)
    status.failed("loss is not finite (学习率 0.1)", step=9)
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["reason"].endswith("(学习率 0.1)")
    status.finished(step=12)
    assert read_status(tmp_path)["status"] == "finished"
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_throughput_leaves_validation_and_checkpoints_out():
    time = iter([0, 2, 3, 103, 105, 110, 120]).__next__  # start | pause..resume | window | window ...
    rate = Throughput(clock=time)  # 0
    rate.add(100)
    with rate.paused(), rate.paused():  # 2 to 3
        pass
    rate.pause()  # 103
    with rate.paused():
        pass
    rate.resume()  # 105
    rate.add(116)
    assert rate.window() == 216 / (110 - 3)
    rate.add(40)
    assert rate.window() == 4
    assert rate.overall() == 256 / (107 + 10)


def test_padding_is_no_token():
    ids, pos = torch.zeros(2, 5, dtype=torch.long), torch.tensor([[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]])
    assert n_tokens({"ids": ids}) == 10
    assert n_tokens({"ids": ids, "pos": pos}) == 8
    assert n_tokens({"ids": ids, "pos": pos, "src": ids, "targets": ids}) == 18
    assert n_tokens({"ids": ids, "src": ids, "src_pos": pos}) == 18
    rate = Throughput(clock=iter([0, 4]).__next__)
    rate.add(n_tokens({"ids": ids, "pos": pos}))
    assert rate.window() == 2
    assert isinstance(rate.state_dict()["tokens"], int)
