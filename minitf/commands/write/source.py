"""Models that read a source and write an answer: as ids, or as the symbols that a run keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from omegaconf import DictConfig, OmegaConf

from minitf.commands.write.rows import padded
from minitf.commands.write.written import Stream, tell
from minitf.config import build
from minitf.errors import DataError
from minitf.files import user_path

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minitf.data.items.spelling import Spelling

NO_DRAFT = "a draft serves models that go on with a text"
NO_PREFIX = "a prompt cache holds a text that is gone on with"


class SourceKind:
    """A model that reads a source and writes an answer: ids, or the symbols that they stand for.

    Where nothing says what ids mean, the last one of the vocabulary begins and ends what is written, as in minitf's
    synthetic data.

    Args:
        model: as `load_run` gives it.
        spelling: what the ids of its run mean; None: prompts are ids with spaces between them.
    """

    what = "a model that reads a source"
    refused: ClassVar[dict[str, str]] = {
        "steps": "it is for models that fill masked places, such as model=bert_tiny",
        "draft": NO_DRAFT,
        "prompt_cache": NO_PREFIX,
        "stop_string": "it ends at its stop token",
        "prefill_chunk": "the source is read at once",
    }

    def __init__(self, model: nn.Module, spelling: Spelling | None = None) -> None:
        self.spelling = spelling
        self.n_symbols = model.source_embedding.num_embeddings
        self.end_id = model.embedding.num_embeddings - 1 if spelling is None else spelling.end_id
        self.example = "1 0 2" if spelling is None else spelling.source.example
        self._told: set[str] = set()

    def read(self, model: nn.Module, prompts: Sequence[str]) -> dict[str, Tensor | None]:
        """What `generate` and `beam_search` are given for some sources; symbols that the run does not know are told.

        Raises:
            DataError: an empty source, or ids that there are not.
        """
        import torch

        from minitf.generation.mode import evaluating

        src, src_pos = padded([self._ids(prompt) for prompt in prompts], left=False)
        with evaluating(model):
            memory = model.encode(src, src_pos)
        return {"ids": torch.full((len(prompts), 1), self.end_id), "memory": memory, "memory_pos": src_pos}

    def _ids(self, prompt: str) -> list[int]:
        if self.spelling is not None:
            if not prompt.strip():
                raise DataError(f"{prompt!r} is no source for this run: give a text, such as prompt={self.example!r}")
            ids, unknown = self.spelling.encode(prompt)
            self._tell(unknown)
            return ids
        words, known = prompt.split(), {str(i) for i in range(self.n_symbols)}
        if words and known.issuperset(words):
            return [int(word) for word in words]
        raise DataError(
            f"{prompt!r:.80} is no source for this run, which reads ids from 0 to {self.n_symbols - 1}: give some with "
            f"spaces between them, such as prompt={self.example!r}"
        )

    def _tell(self, unknown: Sequence[str]) -> None:
        """Each symbol once: a prompt may be read several times."""
        from minitf.data.items.encode import UNKNOWN

        if new := [symbol for symbol in unknown if symbol not in self._told]:
            self._told.update(new)
            shown = ", ".join(repr(symbol) for symbol in new[:8])
            more = f" and {len(new) - 8} more" if len(new) > 8 else ""
            tell(
                f"not among the {self.n_symbols} symbols of this run, so that its model reads {UNKNOWN}: {shown}{more}"
            )

    def stream(self, stop_strings: Sequence[str] = ()) -> Stream:
        """A fresh decoder of one row."""
        if self.spelling is None:
            return SymbolStream({self.end_id}, str, " ")
        return SymbolStream({self.end_id}, self.spelling.symbol, self.spelling.source.between)

    def lead(self, prompt: str) -> str:
        """What stands before what was written for a source."""
        return f"{prompt} -> "


class SymbolStream:
    """Shows ids as symbols.

    Args:
        hidden: ids that are not shown.
        symbol: of an id.
        between: stands between two symbols.
    """

    def __init__(self, hidden: Collection[int], symbol: Callable[[int], str], between: str) -> None:
        self.stopped: str | None = None
        self._hidden, self._symbol, self._between, self._begun = hidden, symbol, between, False

    def push(self, token_id: int) -> str:
        """The next symbol."""
        if token_id in self._hidden:
            return ""
        before, self._begun = self._between if self._begun else "", True
        return f"{before}{self._symbol(token_id)}"

    def flush(self) -> str:
        """Nothing was held back."""
        return ""


def spelling_of(model: nn.Module, cfg: DictConfig, name: str, allow: Sequence[str]) -> Spelling | None:
    """What the ids of a run mean; None where nothing is kept of it.

    Args:
        model, cfg: as `load_run` gives them.
        name: the folder of the run, as typed.
        allow: names of further packages whose parts the run's data may use.

    Raises:
        ConfigError: symbols that cannot be read, or data that is not trusted.
    """
    data = cfg.get("data") or {}
    if not str(data.get("_target_")).startswith("minitf.data.items."):
        return None
    from minitf.data.items.spelling import Spelling
    from minitf.runs import check_data

    node = OmegaConf.to_container(data)["source"]
    check_data(node, allow)
    sizes = (model.source_embedding.num_embeddings, model.embedding.num_embeddings)
    return Spelling(build(node), user_path(name), *sizes)
