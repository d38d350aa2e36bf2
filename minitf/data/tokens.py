"""What data modules with a tokenizer have in common: what people read for its ids, and whether it is still the same."""

from collections.abc import Sequence
from pathlib import Path

from minitf.data.tokenizer import BaseTokenizer, load_tokenizer
from minitf.errors import DataError


def names(tokenizer: BaseTokenizer, ids: Sequence[int]) -> list[str]:
    """What people read for each id; bytes that are no whole character stay bytes."""
    special = {tokenizer.bos_id: "[bos]", tokenizer.mask_id: "[mask]"}
    texts = [tokenizer.token_bytes(i).decode("utf-8", "backslashreplace") for i in ids]
    return [special.get(i, text) for i, text in zip(ids, texts, strict=True)]


def check_same(tokenizer: BaseTokenizer, folder: Path) -> None:
    """Raise DataError unless `folder` keeps this tokenizer."""
    if load_tokenizer(folder).content() != tokenizer.content():
        raise DataError(
            "the tokenizer made from the text is not the one in the run folder, although the text is the same: "
            "install the version of `tokenizers` that the run began with, or start a new run"
        )
