"""Training steps to be timed: minitf's own and those of transformers' GPT-2, of the same shape."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from minitf.config import build, set_data_facts
from minitf.errors import ConfigError
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.precision import resolve_precision

Step = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class Shape:
    """Size of the models that are compared, and of their batch."""

    n_layers: int
    n_heads: int
    d_model: int
    vocab_size: int
    seq_len: int
    batch_size: int


def minitf_step(cfg: DictConfig, shape: Shape, precision: str) -> Step:
    """One step of minitf: model, loss, clipping and optimizer of a composed training config.

    Args:
        cfg: a training config; its optimizer is used.
        shape: takes the place of the config's own sizes.
        precision: "auto" or a precision of Lightning's.
    """
    model = minitf_model(cfg, shape)
    return step_of(model, CausalLM(), build(cfg.optim)(model), resolve_precision(precision))


def minitf_model(cfg: DictConfig, shape: Shape) -> nn.Module:
    """The config's model in another shape."""
    cfg = cfg.copy()
    cfg.model.d_model, cfg.model.n_layers = shape.d_model, shape.n_layers
    cfg.model.attention.n_heads, cfg.data.seq_len = shape.n_heads, shape.seq_len
    set_data_facts(cfg, vocab_size=shape.vocab_size)
    torch.manual_seed(0)
    return build(cfg.model)


def require_transformers() -> None:
    """Raise ConfigError if transformers is not installed."""
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError("bench=train compares with transformers: pip install -e '.[bench]'")


def gpt2_step(shape: Shape, precision: str) -> Step:
    """One step of transformers' GPT-2 without dropout, its own loss, clipping and fused AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocab_size,
            n_positions=shape.seq_len,
            n_embd=shape.d_model,
            n_layer=shape.n_layers,
            n_head=shape.n_heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict]:
        # transformers shifts inside; labels = ids is its usual call
        return model(batch["ids"], labels=batch["ids"]).loss, {}

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return step_of(model, loss, optimizer, resolve_precision(precision))


def step_of(model: nn.Module, objective: Any, optimizer: torch.optim.Optimizer, precision: str) -> Step:
    """Forward, backward, clipping, optimizer: one plain training step."""
    mixed = precision == "bf16-mixed"
    if not mixed and precision != "32-true":
        raise ConfigError(f"this benchmark knows 32-true and bf16-mixed, got {precision}")

    def step(ids: Tensor, targets: Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss, _ = objective(model, {"ids": ids, "targets": targets})
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
