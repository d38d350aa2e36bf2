"""A model taken apart for demo=memory: rows of a table, each with its modules and what they cost by formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omegaconf import DictConfig
from torch import nn

from minitf.blocks.layer import is_there
from minitf.blocks.position import Position
from minitf.blocks.position.relative_bias import RelativeBias
from minitf.blocks.projection import Projection
from minitf.blocks.stack import Stack
from minitf.demo.cost import Cost, Sizes, if_counted, matrix, of_ffn, of_norm
from minitf.demo.cost_attention import of_attention, sizes
from minitf.demo.cost_recurrent import alignments, recurrent
from minitf.demo.cost_score import of_score
from minitf.demo.part import Part, Shape
from minitf.models.head.pointer import PointerHead


@dataclass
class Block:
    """An attention block.

    Attributes:
        sizes: None where it has none.
        projection: None in a recurrent model, which reads the memory as it is.
        cross: whether it reads a source.
        cached: whether a cache serves it.
    """

    sizes: Sizes | None
    projection: Projection | None
    cross: bool
    cached: bool


def attention_blocks(model: nn.Module, shape: Shape) -> list[Block]:
    """Every attention block of the model's stacks, or of a recurrent model."""
    found = [Block(n, projection=None, cross=True, cached=False) for _, _, n in alignments(model, shape)]
    for _, stack, length in _stacks(model, shape):
        cached = shape.S is None or _reads(stack)
        for layer in stack.layers:
            if is_there(layer.attention):
                found.append(_block(layer.attention, shape.B, length, length, cross=False, cached=cached))
            if is_there(layer.cross_attention):
                found.append(_block(layer.cross_attention, shape.B, length, shape.S, cross=True, cached=cached))
    return found


def _block(attention: nn.Module, B: int, T: int, S: int, *, cross: bool, cached: bool) -> Block:
    return Block(sizes(attention, B, T, S), getattr(attention, "projection", None), cross, cached)


def parts(model: nn.Module, config: DictConfig, shape: Shape) -> list[Part]:
    """The rows of the table. What no row names is left to the caller."""
    found = _embeddings(model, config)
    for name, stack, length in _stacks(model, shape):
        found += _stack(name, stack, shape, length, config)
    found += recurrent(model, shape)
    if isinstance(head := getattr(model, "head", None), nn.Module):
        own = Part("head" + (" (tied to the embedding)" if _is_tied(model) else ""))
        own.add("head", _head(head, model, shape))
        found.append(own)
    return found


def _stacks(model: nn.Module, shape: Shape) -> Iterator[tuple[str, Stack, int]]:
    """Every stack with its name, dot included, and the length of its rows."""
    for name, stack in model.named_modules():
        if isinstance(stack, Stack):
            of_source = shape.S is not None and not _reads(stack)
            yield f"{name}." if name else "", stack, shape.S if of_source else shape.T


def _reads(stack: Stack) -> bool:
    """Whether it reads another sequence."""
    return any(layer.cross_attention is not None for layer in stack.layers)


def _embeddings(model: nn.Module, config: DictConfig) -> list[Part]:
    rows = {"embedding": config.data.vocab_size, "source_embedding": config.data.src_vocab_size}
    found, seen = [], set()
    for name, n in rows.items():
        table = getattr(model, name, None)
        if isinstance(table, nn.Module) and id(table) not in seen:
            seen.add(id(table))
            found.append(Part(name.replace("_", " "), [name], Cost(params=n * config.model.d_model)))
    return found


def _stack(name: str, stack: Stack, shape: Shape, length: int, config: DictConfig) -> list[Part]:
    title = f"{name.rstrip('.')}: " if name else ""
    position, norms = Part(f"{title}positions"), Part(f"{title}norms")
    attention, cross, ffn = Part(f"{title}attention"), Part(f"{title}cross-attention"), Part(f"{title}feed-forward")
    d_model = config.model.d_model
    for i, layer in enumerate(stack.layers):
        inside = f"{name}layers.{i}."
        if layer.position is not None:
            position.add(f"{inside}position", _position(layer.position, d_model))
        attention.add(f"{inside}attention", of_attention(layer.attention, shape.B, length, length))
        if layer.cross_attention is not None:
            cross.add(f"{inside}cross_attention", of_attention(layer.cross_attention, shape.B, length, shape.S))
        ffn.add(f"{inside}ffn", of_ffn(layer.ffn, shape.B * length))
        sublayers = ("attention", "cross_attention", "ffn")
        for child, module in layer.named_children():
            if child not in (*sublayers, "position", "dropout"):
                _add_norms(norms, f"{inside}{child}", module, d_model)
    position.add(f"{name}position", _position(stack.position, d_model))
    for child, module in stack.named_children():
        if child.endswith("norm"):
            _add_norms(norms, f"{name}{child}", module, d_model)
    for part, n in ((attention, len(stack.layers)), (cross, len(cross.names)), (ffn, len(stack.layers))):
        part.title += f", {n} times"
    return [position, attention, *([cross] if cross.names else []), ffn, norms]


def _add_norms(row: Part, name: str, module: nn.Module, d_model: int) -> None:
    """A norm, or the norms that a layer keeps together."""
    for inner, norm in module.named_modules():
        if not list(norm.children()):
            row.add(f"{name}.{inner}".rstrip("."), of_norm(norm, d_model))


def _position(position: Position, d_model: int) -> Cost | None:
    """A table has a vector per place, or a number per head and distance; no scheme has a matrix product."""
    if position.limit is not None:
        return if_counted(Cost(params=position.limit * d_model), position)
    if isinstance(position, RelativeBias):
        return if_counted(Cost(params=position.n_buckets * position.table.embedding_dim), position)
    return if_counted(Cost(), position)


def _is_tied(model: nn.Module) -> bool:
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return any(id(p) in tables for p in model.head.parameters())


def _head(head: nn.Module, model: nn.Module, shape: Shape) -> Cost | None:
    """Its matrices, each once per row of the output, a tied one without parameters of its own; or its score."""
    if isinstance(head, PointerHead):
        d_model = model.embedding.embedding_dim
        return of_score(head.score, Sizes(B=shape.B, T=shape.T, S=shape.S, D=d_model, H=1, G=1, d=d_model, d_v=0))
    rows = shape.outputs
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    total, known = Cost(), set()
    for module in head.modules():
        if isinstance(module, nn.Linear):
            known |= {id(p) for p in module.parameters()}
            cost = matrix(rows, module.in_features, module.out_features, module.bias is not None)
            total += Cost(0, cost.flops) if id(module.weight) in tables else cost
        elif isinstance(module, nn.LayerNorm):
            known |= {id(p) for p in module.parameters()}
            total += of_norm(module, module.normalized_shape[0])
        elif isinstance(bias := getattr(module, "bias", None), nn.Parameter):
            known.add(id(bias))
            total += Cost(params=bias.numel())
    return total if {id(p) for p in head.parameters()} <= known else None
