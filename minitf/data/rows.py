"""Documents without splits of their own, split in one way wherever they come from."""

from collections.abc import Sequence

from minitf.data.text import Documents, in_validation, split_by_place


def split_documents(texts: Sequence[str], names: Sequence[str], val_fraction: float, record: dict) -> Documents:
    """By a stable hash of each document's content; where there are fewer than 1 / val_fraction, by place in each.

    Args:
        texts: the documents.
        names: one per document, for messages.
        val_fraction: part of the characters that is validation, between 0 and 1.
        record: what is known of the source; how it was split is added.
    """
    if len(texts) < 1.0 / val_fraction:
        record = {**record, "split": f"by place: the last {val_fraction:g} of each document for validation"}
        halves = [split_by_place(text, val_fraction) for text in texts]
        return Documents([train for train, _ in halves], [val for _, val in halves], record, list(names))
    record = {**record, "split": f"by document: stable hash of its content, {val_fraction:g} for validation"}
    chosen = in_validation(texts, [len(text) for text in texts], val_fraction)
    return Documents(
        train=[text for text, is_val in zip(texts, chosen, strict=True) if not is_val],
        val=[text for text, is_val in zip(texts, chosen, strict=True) if is_val],
        val_names=[name for name, is_val in zip(names, chosen, strict=True) if is_val],
        record=record,
    )
