"""How a GRU reads rows, and the encoders that do nothing else.

Source of the cell: Cho et al. 2014 (torch.nn.GRU). All of it takes padding on either side: real tokens are moved to
the front of their row, read, and moved back, so that padding changes nothing. At padding the memory is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.errors import ConfigError


class OneWay(nn.Module):
    """An encoder that reads from the first token to the last: h_t has seen the tokens up to t."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gru = make_gru(d_model, d_model)

    def forward(self, x: Tensor, pos: Tensor | None) -> Tensor:
        """(B,S,D) and positions -> (B,S,D), 0 at padding."""
        return zero_padding(read(self.gru, x, InOrder(x, pos))[0], pos)


class BothWays(nn.Module):
    """An encoder that reads in both directions, each giving half of h_t. Source: Bahdanau et al. 2015, section 3.2."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ConfigError(f"an encoder of two directions needs an even d_model, got {d_model}")
        self.there, self.back = make_gru(d_model, d_model // 2), make_gru(d_model, d_model // 2)

    def forward(self, x: Tensor, pos: Tensor | None) -> Tensor:
        """(B,S,D) and positions -> (B,S,D), 0 at padding."""
        there, _ = read(self.there, x, InOrder(x, pos))
        back, _ = read(self.back, x, InOrder(x, pos, backwards=True))
        return zero_padding(torch.cat([there, back], -1), pos)


class InOrder:
    """The order in which the tokens of each row are read: the real ones, then what does not matter.

    Args:
        x: (B,T,...), for its size.
        pos: (B or 1, T), -1 at padding; None: every token is real.
        backwards: from the last token to the first.
    """

    def __init__(self, x: Tensor, pos: Tensor | None, backwards: bool = False) -> None:
        self.order = self.place = self.n_real = None
        if pos is not None or backwards:
            rank = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
            rank = -rank if backwards else rank
            if pos is not None:
                rank = rank.masked_fill(pos < 0, x.size(1))
                self.n_real = (pos >= 0).sum(-1).expand(x.size(0))
            self.order = rank.argsort(dim=-1, stable=True)
            self.place = self.order.argsort(-1)

    def front(self, x: Tensor) -> Tensor:
        """(B,T,D) in the order of reading."""
        return _take(x, self.order)

    def back(self, x: Tensor) -> Tensor:
        """(B,T,D) from the order of reading to that of the row."""
        return _take(x, self.place)

    def last(self, states: Tensor, start: Tensor) -> Tensor:
        """What a row ends with.

        Args:
            states: (B,T,D) after each token, in the order of reading.
            start: (B,D) before the first, which stays where no token is real.

        Returns:
            (B,D) after the last real token.
        """
        if self.n_real is None:
            return states[:, -1]
        return _take(torch.cat([start[:, None], states], 1), self.n_real[:, None])[:, 0]


def read(gru: nn.GRU, x: Tensor, order: InOrder, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """States (B,T,D) after each token, and the last (B,D) of each row.

    Args:
        gru: one layer, one direction, batch first.
        x: (B,T,D).
        order: of its tokens.
        start: state (B,D) before the first; None: 0.
    """
    if start is None:
        start = x.new_zeros(x.size(0), gru.hidden_size)
    states, _ = gru(order.front(x), start[None])
    return order.back(states), order.last(states, start)


def make_gru(d_in: int, d_out: int) -> nn.GRU:
    """One layer of GRU with `init_gru` done."""
    gru = nn.GRU(d_in, d_out, batch_first=True)
    init_gru(gru)
    return gru


def init_gru(gru: nn.GRU | nn.GRUCell) -> None:
    """Fill a GRU, which the rules of model/init leave alone: each gate's recurrent matrix orthogonal, others Xavier.

    Source: Bahdanau et al. 2015, section B.1 (orthogonal recurrent matrices, biases 0); Glorot and Bengio 2010.
    """
    for name, p in gru.named_parameters():
        if p.dim() == 1:
            nn.init.zeros_(p)
        else:
            for gate in p.detach().chunk(3):
                (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)


def at_end(memory: Tensor, memory_pos: Tensor | None, last: bool) -> Tensor:
    """What stands at the last, or first, real token of each row.

    Args:
        memory: (B,S,D).
        memory_pos: (B or 1, S), -1 at padding; None: every token is real.
        last: which of the two.

    Returns:
        (B,D); of a row without real tokens what stands at its edge.
    """
    if memory_pos is None:
        return memory[:, -1 if last else 0]
    real = (memory_pos >= 0).expand(memory.shape[:2]).int()
    place = memory.size(1) - 1 - real.flip(-1).argmax(-1) if last else real.argmax(-1)
    return _take(memory, place[:, None])[:, 0]


def zero_padding(x: Tensor, pos: Tensor | None) -> Tensor:
    """(B,T,D) with 0 where there is no token."""
    return x if pos is None else x.masked_fill((pos < 0)[..., None], 0.0)


def _take(x: Tensor, index: Tensor | None) -> Tensor:
    return x if index is None else x.gather(1, index[..., None].expand(-1, -1, x.size(-1)))
