"""The recurrent baseline: a GRU reads the source, another one writes the target; a file for each way between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_positive, check_probability
from minitf.cache import KVCache, check_maker
from minitf.cache.state import State
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
        keeps_keys: whether the decoder makes keys of the source that a cache can keep.
        sees_future: False, a token is read before the next one.
        position_limit: None, rows may have any length.
        has_loop: True, its loop over tokens is more than a compiler can take.

    Raises:
        ConfigError: sizes that cannot be; data without a source.
    """

    keeps_keys = False
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

    def decode(
        self,
        x: Tensor,
        pos: Tensor | None,
        memory: Tensor,
        memory_pos: Tensor | None,
        state: Tensor | None = None,
        keys: KVCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Go on with the target.

        Args:
            x: embedded tokens (B,T,D).
            pos: their positions (B or 1, T); None: every token is real.
            memory, memory_pos: the source (B,S,D) and its positions.
            state: (B,D) before the first of the tokens; None: they begin the target.
            keys: keeps what is made of the source, if anything is.

        Returns:
            Hidden states (B,T,D), and the state (B,D) after the last token of each row.
        """
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
            ids: int64 (B,T), the target from its beginning, or from where the caches are.
            pos: (B or 1, T), -1 at padding; None means that the row simply goes on, without padding.
            memory: (B,S,D) from `encode`.
            memory_pos: (B or 1, S), -1 at padding; None means a source without padding.
            caches: from `new_caches`.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: no memory or that of other rows; caches that do not fit; packed rows.
        """
        if memory is None:
            raise ConfigError(
                "this model reads a source, and was given none: encode one first, or choose data and a task with "
                "source and target"
            )
        if memory.size(0) != ids.size(0):
            raise ConfigError(f"{ids.size(0)} rows of target tokens, {memory.size(0)} of memory: they must be as many")
        check_not_packed(pos)
        state = None if caches is None else self._state(caches, ids, pos)
        x = self.dropout(self.embedding(ids))
        keys = caches[1] if caches is not None and self.keeps_keys else None
        states, last = self.decode(x, pos, memory, memory_pos, state, keys)
        if caches is not None:
            plain, n_seen = pos is None, caches[0].n_seen
            pos = torch.arange(n_seen, n_seen + ids.size(1), device=ids.device)[None] if plain else pos
            caches[0].update(last, pos=pos, plain=plain)
        return self.dropout(states)

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
        """Target ids (B,T) -> logits (B,V) of the last token; arguments as for `hidden`."""
        hidden = self.hidden(ids, pos, memory, memory_pos, caches)[:, -1:]
        return read_out(self.head, hidden, memory, memory_pos)[:, 0]

    def new_caches(self, make: Callable[[], KVCache]) -> list[KVCache]:
        """Fresh caches: one for the decoder's state, then one for the keys of the source, if it makes any.

        Args:
            make: as for `Stack.new_caches`; gives the kind of the second cache. The first is a State whatever it is, as
                no token is read again.

        Raises:
            ConfigError: `make` is something else.
        """
        check_maker(make)
        return [State(), make().for_source()] if self.keeps_keys else [State()]

    def _state(self, caches: Sequence[KVCache], ids: Tensor, pos: Tensor | None) -> Tensor | None:
        """The state that the caches hold, None if they are fresh."""
        n = 1 + self.keeps_keys
        if len(caches) != n or not isinstance(caches[0], State):
            raise ConfigError(
                f"this model needs {n} caches, the first one a State, got {[type(c).__name__ for c in caches]}: use "
                "new_caches"
            )
        if caches[0].n_seen == 0:
            return None
        if pos is None and not caches[0].plain:
            raise ConfigError("these caches hold padded rows: give the positions of the new tokens")
        (state,), _ = caches[0].read()
        if state.size(0) != ids.size(0):
            raise ConfigError(
                f"these caches hold {state.size(0)} rows, got {ids.size(0)} of target tokens: make new caches or reset "
                "them"
            )
        return state


def check_not_packed(pos: Tensor | None) -> None:
    """Raise ConfigError where a row holds several documents: the state would go on from one to the next."""
    if pos is not None and bool((pos >= SEGMENT).any()):
        raise ConfigError("a recurrent model reads one document a row, not packed ones: pad the rows instead")
