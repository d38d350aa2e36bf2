"""The recurrent baseline: a GRU reads the source, another one writes the target; a file for each way between them.

Source of the cell: Cho et al. 2014 (torch.nn.GRU). All of it takes padding on either side: real tokens are moved to
the front of their row, read, and moved back, so that padding changes nothing. At padding the memory is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_positive, check_probability
from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.models.embedding import Embedding
from minitf.models.head import read_out
from minitf.positions import SEGMENT

N_GRUS = 2  # how many there are, about


class Recurrent(nn.Module):
    """What the recurrent models share: two embeddings, an encoder, a head, and their calls.

    Args:
        vocab_size: number of target tokens V.
        src_vocab_size: number of source tokens; null where the data has no source.
        d_model: width D of everything.
        embedding_power: vectors of both tables are multiplied by d_model to this power on their way in.
        tie_embeddings: use the target's table as the head's matrix.
        dropout: probability of dropping an element of the embeddings and of the last hidden states.
        head: factory of the head, see `minitf.models.head`.
        encoder: reads embedded tokens (B,S,D) with positions -> (B,S,D).

    A subclass has `decode`, and calls its `init` when all is made.

    Attributes:
        sees_future: False, a token is read before the next one.
        position_limit: None, rows may have any length.
        has_loop: True, its loop over tokens is more than a compiler can take.

    Raises:
        ConfigError: sizes that cannot be; data without a source.
    """

    sees_future = False
    position_limit = None
    has_loop = True

    def __init__(
        self,
        *,
        vocab_size: int,
        src_vocab_size: int | None,
        d_model: int,
        embedding_power: float,
        tie_embeddings: bool,
        dropout: float,
        head: Callable[..., nn.Module],
        encoder: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        if src_vocab_size is None:
            raise ConfigError(
                "this model reads a source, and the data has none (data.src_vocab_size is null): choose data with "
                "source and target, or a decoder such as model=gpt_tiny"
            )
        check_positive(src_vocab_size=src_vocab_size)
        check_probability("dropout", dropout)
        self.embedding = Embedding(vocab_size, d_model, N_GRUS, embedding_power)
        self.source_embedding = Embedding(src_vocab_size, d_model, N_GRUS, embedding_power)
        self.dropout = nn.Dropout(dropout)
        self.encoder = encoder(d_model)
        tied_to = self.embedding if tie_embeddings else None
        self.head = head(d_model=d_model, vocab_size=vocab_size, n_classes=None, tied_to=tied_to)

    def decode(self, x: Tensor, pos: Tensor | None, memory: Tensor, memory_pos: Tensor | None) -> Tensor:
        """Embedded target tokens (B,T,D) and memory (B,S,D), with their positions -> hidden states (B,T,D)."""
        raise NotImplementedError

    def encode(self, src: Tensor, src_pos: Tensor | None = None) -> Tensor:
        """Source ids -> memory, for any number of calls of `hidden` or `step`.

        Args:
            src: int64 (B,S).
            src_pos: (B or 1, S), -1 at padding; None means a row without padding. A row holds one source, not several.

        Returns:
            (B,S,D), 0 at padding.

        Raises:
            ConfigError: packed rows.
        """
        check_not_packed(src_pos)
        return self.encoder(self.dropout(self.source_embedding(src)), src_pos)

    def hidden(
        self,
        ids: Tensor,
        pos: Tensor | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Target ids and memory -> last hidden states.

        Args:
            ids: int64 (B,T), the target from its beginning.
            pos: (B or 1, T), -1 at padding; None means a row without padding.
            memory: (B,S,D) from `encode`.
            memory_pos: (B or 1, S), -1 at padding; None means a source without padding.
            caches: None, there is nothing that a cache could hold.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: no memory or that of other rows; caches; packed rows.
        """
        if memory is None:
            raise ConfigError(
                "this model reads a source, and was given none: encode one first, or choose data and a task with "
                "source and target"
            )
        if memory.size(0) != ids.size(0):
            raise ConfigError(f"{ids.size(0)} rows of target tokens, {memory.size(0)} of memory: they must be as many")
        if caches is not None:
            raise _no_caches()
        check_not_packed(pos)
        x = self.dropout(self.embedding(ids))
        return self.dropout(self.decode(x, pos, memory, memory_pos))

    def forward(self, src: Tensor, src_pos: Tensor | None, ids: Tensor, pos: Tensor | None = None) -> Tensor:
        """Source ids (B,S) and target ids (B,T) -> logits (B,T,V); arguments as for `encode` and `hidden`."""
        memory = self.encode(src, src_pos)
        return read_out(self.head, self.hidden(ids, pos, memory, src_pos), memory, src_pos)

    def step(
        self,
        ids: Tensor,
        pos: Tensor | None = None,
        caches: Sequence[KVCache] | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
    ) -> Tensor:
        """Target ids (B,T) from the beginning -> logits (B,V) of the last token; arguments as for `hidden`."""
        hidden = self.hidden(ids, pos, memory, memory_pos, caches)[:, -1:]
        return read_out(self.head, hidden, memory, memory_pos)[:, 0]

    def new_caches(self, make: Callable[[], KVCache]) -> list[KVCache]:
        """Raise ConfigError: a recurrent model reads the whole target again at each step."""
        raise _no_caches()


class OneWay(nn.Module):
    """An encoder that reads from the first token to the last: h_t has seen the tokens up to t."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gru = make_gru(d_model, d_model)

    def forward(self, x: Tensor, pos: Tensor | None) -> Tensor:
        """(B,S,D) and positions -> (B,S,D), 0 at padding."""
        return zero_padding(read(self.gru, x, InOrder(x, pos)), pos)


class BothWays(nn.Module):
    """An encoder that reads in both directions, each giving half of h_t. Source: Bahdanau et al. 2015, section 3.2."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ConfigError(f"an encoder of two directions needs an even d_model, got {d_model}")
        self.there, self.back = make_gru(d_model, d_model // 2), make_gru(d_model, d_model // 2)

    def forward(self, x: Tensor, pos: Tensor | None) -> Tensor:
        """(B,S,D) and positions -> (B,S,D), 0 at padding."""
        there = read(self.there, x, InOrder(x, pos))
        back = read(self.back, x, InOrder(x, pos, backwards=True))
        return zero_padding(torch.cat([there, back], -1), pos)


class InOrder:
    """The order in which the tokens of each row are read: the real ones, then what does not matter.

    Args:
        x: (B,T,...), for its size.
        pos: (B or 1, T), -1 at padding; None: every token is real.
        backwards: from the last token to the first.
    """

    def __init__(self, x: Tensor, pos: Tensor | None, backwards: bool = False) -> None:
        self.order = self.place = None
        if pos is not None or backwards:
            rank = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
            rank = -rank if backwards else rank
            if pos is not None:
                rank = rank.masked_fill(pos < 0, x.size(1))
            self.order = rank.argsort(dim=-1, stable=True)
            self.place = self.order.argsort(-1)

    def front(self, x: Tensor) -> Tensor:
        """(B,T,D) in the order of reading."""
        return _take(x, self.order)

    def back(self, x: Tensor) -> Tensor:
        """(B,T,D) from the order of reading to that of the row."""
        return _take(x, self.place)


def read(gru: nn.GRU, x: Tensor, order: InOrder, start: Tensor | None = None) -> Tensor:
    """States (B,T,D) after each token.

    Args:
        gru: one layer, one direction, batch first.
        x: (B,T,D).
        order: of its tokens.
        start: state (B,D) before the first; None: 0.
    """
    states, _ = gru(order.front(x), None if start is None else start[None])
    return order.back(states)


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


def check_not_packed(pos: Tensor | None) -> None:
    """Raise ConfigError where a row holds several documents: the state would go on from one to the next."""
    if pos is not None and bool((pos >= SEGMENT).any()):
        raise ConfigError("a recurrent model reads one document a row, not packed ones: pad the rows instead")


def _take(x: Tensor, index: Tensor | None) -> Tensor:
    return x if index is None else x.gather(1, index[..., None].expand(-1, -1, x.size(-1)))


def _no_caches() -> ConfigError:
    return ConfigError("a recurrent model holds no keys and values: run it without caches (cache=none)")
