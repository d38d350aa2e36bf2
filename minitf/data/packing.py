"""Which document stands in which row: several packed into a row, or one a row and padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minitf.data.windows import IGNORED
from minitf.positions import NO_TOKEN, SEGMENT


class Layout:
    """Which piece of which document stands in which row.

    A document longer than a row is cut into pieces of seq_len tokens and a shorter last one; a piece knows nothing of
    those before it. The target of a token is the next token of the text, so the last one of a document says that the
    document ends (by the bos of the next one), and that of a piece what the next piece begins with: what is scored is
    what windows of the stream score, every token but the first.

    Packed rows are filled by best-fit decreasing: the longest piece first, each into the row with the least room that
    still holds it. It needs at most 11/9 as many rows as the best packing and 1 more (Johnson 1973), and was used for
    training by Ding et al. 2024 ("Fewer Truncations Improve Language Modeling").

    Args:
        tokens: unsigned integers (n,): bos and the ids of each document, in order.
        bos_id: what starts a document, and stands nowhere else.
        seq_len: places of a row, T.
        packed: several pieces a row; False: one a row.
    """

    def __init__(self, tokens: np.ndarray, bos_id: int, seq_len: int, packed: bool) -> None:
        self.tokens, self.seq_len = tokens, seq_len
        self.starts, self.lengths = _pieces(tokens, bos_id, seq_len)
        row = best_fit(self.lengths, seq_len) if packed else np.arange(len(self.lengths))
        self.order = np.argsort(row, kind="stable")  # pieces row by row, inside a row in the order of the text
        self.counts = np.bincount(row)
        self.first = np.cumsum(self.counts) - self.counts
        self.n_rows = len(self.counts)
        self.n_scored = np.bincount(row, weights=self.lengths).astype(np.int64)
        self.n_scored[row[-1]] -= 1  # nothing follows the last token of the text

    @property
    def fill(self) -> float:
        """Share of the places that hold a token."""
        return len(self.tokens) / (self.n_rows * self.seq_len)

    @property
    def told(self) -> str:
        """Number of rows and share of tokens in them, beside what one document or piece a row has."""
        alone = len(self.lengths)
        text = f"{self.n_rows:,} for {alone:,} documents or pieces, {self.fill:.1%} of their places hold a token"
        padded = len(self.tokens) / (alone * self.seq_len)
        return text + (f" (padded: {padded:.1%})" if self.n_rows < alone else "")

    def place(self, rows: np.ndarray) -> Placed:
        """Where each token of `rows` stands."""
        order = self.order[_ranges(self.first[rows], self.counts[rows])]
        lengths = self.lengths[order]
        piece = np.repeat(np.arange(len(order)), lengths)
        offset = _ranges(np.zeros_like(lengths), lengths)
        row_of_piece = np.repeat(np.arange(len(rows)), self.counts[rows])
        segment = _ranges(np.zeros_like(rows), self.counts[rows])
        n_of_row = np.bincount(row_of_piece, weights=lengths, minlength=len(rows)).astype(np.int64)
        return Placed(
            n_rows=len(rows),
            pieces=order,
            row=row_of_piece[piece],
            column=_ranges(np.zeros_like(n_of_row), n_of_row),
            piece=piece,
            offset=offset,
            pos=segment[piece] * SEGMENT + offset,
            source=self.starts[order][piece] + offset,
        )

    def batch(self, placed: Placed, ids: np.ndarray, targets: np.ndarray) -> dict[str, Tensor]:
        """Rows of ids, targets and positions, from one number per token; padding is 0, IGNORED and NO_TOKEN."""
        return {
            "ids": self.spread(placed, ids, 0),
            "targets": self.spread(placed, targets, IGNORED),
            "pos": self.spread(placed, placed.pos, NO_TOKEN),
        }

    def spread(self, placed: Placed, values: np.ndarray, padding: int) -> Tensor:
        """One number per token -> int64 (rows, T)."""
        rows = np.full((placed.n_rows, self.seq_len), padding, dtype=np.int64)
        rows[placed.row, placed.column] = values
        return torch.from_numpy(rows)

    def next_tokens(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Ids, and the tokens that follow them in the text, one per token of the rows."""
        follows = self.tokens.take(placed.source + 1, mode="clip").astype(np.int64)
        is_last = placed.source == len(self.tokens) - 1
        return self.tokens[placed.source].astype(np.int64), np.where(is_last, IGNORED, follows)


@dataclass(frozen=True)
class Placed:
    """The tokens of some rows, one number each, row by row.

    Args:
        n_rows: how many rows.
        pieces: the number of each piece in them.
        row, column: where a token stands.
        piece: which one of `pieces` it belongs to.
        offset: its place in that.
        pos: its position, see `minitf.positions`.
        source: its place in the text.
    """

    n_rows: int
    pieces: np.ndarray
    row: np.ndarray
    column: np.ndarray
    piece: np.ndarray
    offset: np.ndarray
    pos: np.ndarray
    source: np.ndarray


def best_fit(lengths: np.ndarray, size: int) -> np.ndarray:
    """Row of each piece by best-fit decreasing.

    Args:
        lengths: of the pieces, each from 1 to `size`.
        size: places of a row.

    Returns:
        int64, as many as lengths; rows are counted from 0, without gaps.
    """
    row = np.empty(len(lengths), dtype=np.int64)
    with_room: list[list[int]] = [[] for _ in range(size + 1)]  # rows by the room that is left
    rooms = 0  # bit r: there is a row with room r
    n_rows = 0
    longest_first = np.argsort(-lengths, kind="stable")
    for piece, length in zip(longest_first.tolist(), lengths[longest_first].tolist(), strict=True):
        enough = rooms >> length
        if enough:
            room = length + (enough & -enough).bit_length() - 1
            chosen = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, chosen = size, n_rows
            n_rows += 1
        row[piece] = chosen
        if room > length:
            with_room[room - length].append(chosen)
            rooms |= 1 << (room - length)
    return row


def _pieces(tokens: np.ndarray, bos_id: int, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """First token and length of each piece, in the order of the text."""
    documents = np.flatnonzero(tokens == bos_id)
    ends = np.append(documents[1:], len(tokens))
    counts = -(-(ends - documents) // seq_len)
    starts = np.repeat(documents, counts) + seq_len * _ranges(np.zeros_like(counts), counts)
    return starts, np.minimum(seq_len, np.repeat(ends, counts) - starts)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """starts[0], starts[0] + 1, ... (counts[0] numbers), starts[1], starts[1] + 1, ..."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
