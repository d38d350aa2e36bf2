"""What the toy studies of these tests compute and measure."""

import os

import torch


def add(seed, a, b=1):
    return {"sum": a + b + seed, "drawn": float(torch.rand(()))}


def broken(seed, a):
    raise RuntimeError(f"no luck with {a}")


def ends(seed, a):
    if a == 2:
        os._exit(7)
    return {"sum": a}


def steps_done(subject, factor=1):
    assert not subject.model.training
    torch.rand(7)  # must not change the training
    return {"steps": factor * subject.step}


def no_numbers(subject):
    return {"steps": "many"}
