"""Models that read one text and write another, both in tokens of one tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import DictConfig

from minitf.commands.write.source import SourceKind
from minitf.commands.write.written import Stream
from minitf.errors import DataError

if TYPE_CHECKING:
    from torch import nn


class TextPairKind(SourceKind):
    """A model that reads a text and writes another, as `minitf.data.items.text.TextItemData` gives them.

    Args:
        model: as `load_run` gives it.
        tokenizer: of its run, for both sides; bos begins and ends what is written.
    """

    refused: ClassVar[dict[str, str]] = {
        option: why for option, why in SourceKind.refused.items() if option != "stop_string"
    }

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        super().__init__(model)
        self.tokenizer = tokenizer
        self.end_id = tokenizer.bos_id

    def _ids(self, prompt: str) -> list[int]:
        if not prompt.strip():
            raise DataError(f"{prompt!r} is no source for this run: give a text")
        return self.tokenizer.encode(prompt)

    def stream(self, stop_strings: Sequence[str] = ()) -> Stream:
        """A fresh decoder of one row."""
        from minitf.generation.text import TextStream

        return TextStream(self.tokenizer, stop_strings)


def writes_pairs(cfg: DictConfig) -> bool:
    """Whether the data of a run were pairs of texts in tokens of one tokenizer.

    Args:
        cfg: as `load_run` gives it.
    """
    return (cfg.get("data") or {}).get("_target_") == "minitf.data.items.text.TextItemData"
