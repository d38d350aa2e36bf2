"""Kinds of models that write: what a prompt means to each, and how its tokens are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import DictConfig

from minitf.commands.write.rows import padded
from minitf.commands.write.source import NO_DRAFT, NO_PREFIX, SourceKind, spelling_of
from minitf.commands.write.translate import TextPairKind, writes_pairs
from minitf.commands.write.written import Stream
from minitf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor, nn

MASK = "[MASK]"


class TextKind:
    """A causal language model: it goes on with a text.

    Args:
        tokenizer: of its run.
    """

    what = "a model that goes on with a text"
    refused: ClassVar[dict[str, str]] = {"steps": "it is for models that fill masked places, such as model=bert_tiny"}

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end_id: int = tokenizer.bos_id

    def read(self, model: nn.Module, prompts: Sequence[str]) -> dict[str, Tensor | None]:
        """What `generate` and `beam_search` are given for some prompts: left-padded rows behind the token that begins
        a document, as in training.

        Raises:
            DataError: a character that the tokenizer does not know.
        """
        rows = [[self.tokenizer.bos_id, *ids.tolist()] for ids in self.tokenizer.encode_batch(prompts)]
        ids, pos = padded(rows, left=True)
        return {"ids": ids, "pos": pos}

    def stream(self, stop_strings: Sequence[str] = ()) -> Stream:
        """A fresh decoder of one row."""
        from minitf.generation.text import TextStream

        return TextStream(self.tokenizer, stop_strings)

    def lead(self, prompt: str) -> str:
        """What stands before the text of a prompt."""
        return prompt


class FillKind:
    """A masked language model: it fills the places of a text where [MASK] stands, a token each.

    Args:
        tokenizer: of its run.
    """

    what = "a model that fills masked places"
    refused: ClassVar[dict[str, str]] = {
        "max_new_tokens": "each [MASK] is one token",
        "beams": "it fills the surest places first",
        "draft": NO_DRAFT,
        "prompt_cache": NO_PREFIX,
        "cache": "each step reads the whole text, which a cache cannot hold",
        "compare": "it uses no cache",
        "stop": "it ends when every place is filled",
        "stop_string": "it ends when every place is filled",
        "prefill_chunk": "the text is read at once",
        "compile": "no single token is read through a cache",
        "repetition_penalty": "rules are for texts that are gone on with",
        "no_repeat_ngram": "rules are for texts that are gone on with",
        "min_new_tokens": "each [MASK] is one token",
    }

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def read(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor | None]:
        """Rows (B,T) of ids behind the token that begins a document, and their positions.

        Raises:
            DataError: a text without a masked place, or with a character that the tokenizer does not know.
        """
        rows = []
        for prompt in prompts:
            first, *others = prompt.split(MASK)
            if not others:
                raise DataError(
                    f"{prompt!r:.80} has no place to fill, which is all that this run's model does: write {MASK} where "
                    f"a token is missing, such as prompt='the {MASK} sat', or give the run of a causal language model"
                )
            row = [self.tokenizer.bos_id, *self.tokenizer.encode(first)]
            for other in others:
                row += [self.tokenizer.mask_id, *self.tokenizer.encode(other)]
            rows.append(row)
        return padded(rows, left=False)

    def lead(self, prompt: str) -> str:
        """Nothing: the filled text is the whole of it."""
        return ""


def kind_of(
    model: nn.Module, tokenizer: Any, cfg: DictConfig, name: str, allow: Sequence[str] = ()
) -> TextKind | SourceKind | FillKind:
    """What a run's model can write.

    Args:
        model, tokenizer, cfg: as `load_run` gives them.
        name: the folder of the run, as typed.
        allow: names of further packages whose parts the run's data may use.

    Raises:
        ConfigError: nothing: it labels or points, or its data is foreign; symbols that cannot be read.
    """
    from minitf.models.head.lm import LMHead
    from minitf.models.head.masked_lm import MaskedLMHead

    if writes_text(model, tokenizer):
        return TextKind(tokenizer)
    kind, head = type(model).__name__, type(model.head).__name__
    if hasattr(model, "encode"):
        if getattr(model.head, "reads_memory", False):
            raise ConfigError(_refusal(name, kind, f"its {head} points at places of a source, and writes no tokens"))
        if tokenizer is not None and writes_pairs(cfg):
            return TextPairKind(model, tokenizer)
        spelling = spelling_of(model, cfg, name, allow)
        if tokenizer is not None or not (spelling or _is_own(cfg)):
            raise ConfigError(_refusal(name, kind, "nothing says which of its ids begins and ends a text"))
        return SourceKind(model, spelling)
    if not isinstance(model.head, LMHead | MaskedLMHead):
        raise ConfigError(_refusal(name, kind, f"its {head} gives labels, no tokens"))
    if tokenizer is not None and tokenizer.mask_id is not None and model.sees_future:
        return FillKind(tokenizer)
    reason = "it was trained on ids without a tokenizer"
    if tokenizer is not None:
        reason = (
            "its mask lets a token read later ones" if model.sees_future else "it was trained to fill hidden tokens"
        )
    raise ConfigError(_refusal(name, kind, reason))


def writes_text(model: nn.Module, tokenizer: Any) -> bool:
    """Whether a model goes on with a text: it was trained on text, which no id hides, and does not see what comes."""
    reads_on = hasattr(model, "step") and not hasattr(model, "encode") and not model.sees_future
    return reads_on and tokenizer is not None and tokenizer.mask_id is None


def _is_own(cfg: DictConfig) -> bool:
    """Whether the data of a run is minitf's synthetic one, whose last id begins and ends a target."""
    data = cfg.get("data") or {}
    targets = [data.get("_target_"), (data.get("task") or {}).get("_target_")]
    return all(isinstance(target, str) and target.startswith("minitf.data.") for target in targets)


def _refusal(name: str, kind: str, reason: str) -> str:
    return (
        f"{name} holds a model ({kind}) that does not go on with a text: {reason}. Give the run of a causal language "
        "model, such as model=gpt_tiny with task=causal_lm"
    )
