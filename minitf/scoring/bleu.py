"""BLEU of texts, as sacrebleu counts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitf.errors import DataError


def corpus_bleu(written: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, str]:
    """BLEU, from 0 to 100, of a whole split: n-grams are counted over all rows before anything is divided.

    Args:
        written: texts as people read them; sacrebleu cuts them into words itself.
        references: for each text all that count as right, at least one; rows may have different numbers.

    Returns:
        The score, and sacrebleu's signature, which says how it was counted.

    Raises:
        DataError: sacrebleu is not installed, or a row has no reference.

    Source: Papineni et al. 2002; Post 2018.
    """
    bleu = make_bleu()
    if not references or not all(references):
        raise DataError("a row has no reference: nothing says what would be right")
    most = max(map(len, references))
    # sacrebleu wants the first references of all rows, then the second ones, ...; None: this row has no further one
    columns = [[known[i] if i < len(known) else None for known in references] for i in range(most)]
    score = bleu.corpus_score(list(written), columns).score
    return score, str(bleu.get_signature())


def make_bleu() -> Any:
    """What counts, with sacrebleu's own settings. Raises DataError where sacrebleu is not installed."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise DataError('BLEU needs sacrebleu, which is not installed: pip install "minitf[data]"') from None
    return BLEU()
