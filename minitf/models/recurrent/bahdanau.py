"""Attention before the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.models.recurrent import Recurrent
from minitf.models.recurrent.alignment import Alignment
from minitf.models.recurrent.reading import BothWays, InOrder, at_end, init_gru


class Bahdanau(Recurrent):
    """A GRU encoder-decoder in which the state before the step reads the source, and what it read goes into the step.

    s_t = GRU([y_t; c_t], s_(t-1)) with c_t = what s_(t-1) reads, and s_0 = tanh(W_s h) of the encoder's backward state
    at the first token. The hidden state is s_t; the paper's maxout layer before the softmax is left out.

    Args:
        vocab_size, src_vocab_size, d_model, embedding_power, tie_embeddings, dropout, head: as for `Recurrent`.
        attention: factories of the `Alignment`'s score and normalize.
        init: fills the parameters of the finished model, but those of the GRUs.

    Raises:
        ConfigError: sizes that cannot be, an odd d_model; data without a source.

    Source: Bahdanau et al. 2015, section 3.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        src_vocab_size: int | None,
        d_model: int,
        embedding_power: float,
        tie_embeddings: bool,
        dropout: float,
        attention: Mapping[str, Callable[..., nn.Module]],
        head: Callable[..., nn.Module],
        init: Callable[[nn.Module], None],
    ) -> None:
        super().__init__(
            vocab_size=vocab_size,
            src_vocab_size=src_vocab_size,
            d_model=d_model,
            embedding_power=embedding_power,
            tie_embeddings=tie_embeddings,
            dropout=dropout,
            head=head,
            encoder=BothWays,
        )
        self.w_start = nn.Linear(d_model // 2, d_model, bias=False)
        self.attention = Alignment(d_model=d_model, **attention)
        self.keeps_keys = self.attention.projects
        self.cell = nn.GRUCell(2 * d_model, d_model)
        init_gru(self.cell)
        init(self)

    def decode(
        self,
        x: Tensor,
        pos: Tensor | None,
        memory: Tensor,
        memory_pos: Tensor | None,
        state: Tensor | None = None,
        keys: KVCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        if state is None:
            backward_state = at_end(memory, memory_pos, last=False).chunk(2, -1)[1]
            state = torch.tanh(self.w_start(backward_state))
        order, start = InOrder(x, pos), state
        source = self.attention.keys(memory, memory_pos, keys)
        states, weights = [], []
        for token in order.front(x).unbind(1):
            context, row = self.attention.step(state, source, memory, memory_pos)
            state = self.cell(torch.cat([token, context], -1), state)
            states.append(state)
            weights.append(row)
        self.attention.tell(order.back(torch.cat(weights, 2)[:, 0])[:, None])
        states = torch.stack(states, 1)
        return order.back(states), order.last(states, start)
