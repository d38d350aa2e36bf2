"""From the documents of a split to one array of ids."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from minitf.data.text import Documents
from minitf.data.tokenizer import BaseTokenizer, id_dtype
from minitf.errors import DataError

PROGRESS_EVERY = 2.0  # seconds between lines while a long text is encoded


def encode(tokenizer: BaseTokenizer, texts: Sequence[str], part: str, progress: Callable[[str], object]) -> np.ndarray:
    """bos and the ids of each document that is not empty, in order: unsigned integers (n,).

    Args:
        tokenizer: trained.
        texts: the documents.
        part: name of the split, for messages.
        progress: is called with one line of text now and then.

    Raises DataError for what the tokenizer cannot write.
    """
    bos = np.array([tokenizer.bos_id], dtype=id_dtype(tokenizer.vocab_size))
    total = sum(map(len, texts))
    done, shown = 0, time.perf_counter()

    def report(n: int) -> None:
        nonlocal done, shown
        done += n
        if time.perf_counter() - shown > PROGRESS_EVERY and done < total:
            progress(f"encoding the {part} split: {done / total:.0%}")
            shown = time.perf_counter()

    laid_out: list[np.ndarray] = []
    for ids in tokenizer.encode_batch(texts, report):
        if len(ids):  # an empty document would be a bos that nothing follows
            laid_out += [bos, ids]
    return np.concatenate(laid_out)


def not_in_training(tokenizer: BaseTokenizer, documents: Documents) -> DataError:
    """The error for a validation text that the tokenizer cannot write, with all its characters and documents."""
    where = []
    names = documents.val_names or [f"document {i}" for i in range(len(documents.val))]
    for name, text in zip(names, documents.val, strict=True):
        try:
            tokenizer.encode_batch([text])
        except DataError:
            where.append(name)
    try:
        tokenizer.encode_batch(["".join(documents.val)])
    except DataError as error:
        more = f" and {len(where) - 5} more" if len(where) > 5 else ""
        return DataError(f"validation ({', '.join(where[:5])}{more}): {error}")
    raise AssertionError("every document of the validation split can be encoded")
