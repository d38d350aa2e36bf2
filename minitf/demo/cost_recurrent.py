"""What a recurrent model costs, by formula."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from minitf.demo.cost import Cost, Sizes, if_counted, matrix
from minitf.demo.cost_attention import alignment_sizes, of_alignment
from minitf.demo.part import Part, Shape
from minitf.models.recurrent.alignment import Alignment
from minitf.models.recurrent.bahdanau import Bahdanau
from minitf.models.recurrent.luong import Luong


def recurrent(model: nn.Module, shape: Shape) -> list[Part]:
    """The rows of the table that only a recurrent model has."""
    layers = Part("recurrent layers")
    for name, module in model.named_modules():
        if isinstance(module, nn.GRU | nn.GRUCell):
            layers.add(name, if_counted(_gru(module, shape, of_source=name.startswith("encoder")), module))
    attention = Part("attention", with_rest=isinstance(model, Bahdanau))
    for name, block, n in alignments(model, shape):
        attention.add(name, of_alignment(block, n, in_steps=isinstance(model, Bahdanau)))
    between = Part("matrix beside them")
    if isinstance(model, Bahdanau):  # from the encoder's backward half to the first state, once a row
        between.add("w_start", matrix(shape.B, model.w_start.in_features, model.w_start.out_features))
    if isinstance(model, Luong):  # from what was read and the state, at every token
        between.add("w_c", matrix(shape.B * shape.T, model.w_c.in_features, model.w_c.out_features))
    return [part for part in (layers, attention, between) if part.names]


def alignments(model: nn.Module, shape: Shape) -> Iterator[tuple[str, Alignment, Sizes]]:
    """The attention of a recurrent model, with its name and sizes."""
    for name, module in model.named_modules():
        if isinstance(module, Alignment):
            yield name, module, alignment_sizes(shape.B, shape.T, shape.S, model.embedding.embedding_dim)


def _gru(gru: nn.GRU | nn.GRUCell, shape: Shape, of_source: bool) -> Cost:
    """Three gates, each a matrix for the input and one for the state.

    The encoder starts from a state of zeros, which needs no gradient; the decoder from what the encoder gave.
    """
    rows, gates = shape.B * (shape.S if of_source else shape.T), 3 * gru.hidden_size
    both = matrix(rows, gru.input_size, gates, gru.bias) + matrix(rows, gru.hidden_size, gates, gru.bias)
    return both + Cost(spared=matrix(shape.B, gru.hidden_size, gates).flops if of_source else 0)
