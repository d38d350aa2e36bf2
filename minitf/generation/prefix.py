"""A prompt that was read once, in a file: its tokens and what the caches keep of them.

A file belongs to one model with one set of weights, and to one kind of cache; anything else is refused.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError, DataError
from minitf.files import atomic_file

FORMAT = "minitf prefix 1"
DIGEST = hashlib.sha256().digest_size  # bytes at the end of the file: damaged entries would be read as they are
KEYS = {"format", "ids", "kinds", "caches", "model"}


def save_prefix(path: str | Path, model: nn.Module, ids: Tensor, caches: Sequence[KVCache]) -> None:
    """Write what the caches hold of a prompt, whole or not at all.

    Args:
        path: the file; an older one of that name is replaced.
        model: the one that has read the prompt.
        ids: int64 (1,T), the tokens that the caches have read, without padding.
        caches: of `model`, one per layer.

    Raises:
        ConfigError: not one row of tokens that just these caches have read.
        OSError: no space, no permission, and the like.
    """
    _check_caches(model, caches)
    if ids.dim() != 2 or ids.size(0) != 1 or ids.size(1) < 1:
        raise ConfigError(f"a prefix is one row of at least one token, (1,T), got {tuple(ids.shape)}")
    if any(c.n_seen != ids.size(1) for c in caches):
        seen = sorted({c.n_seen for c in caches})
        raise ConfigError(
            f"the caches have read {seen} tokens, the prefix has {ids.size(1)}: give just those that were read (the "
            "last token of a generated text was not), or crop the caches"
        )
    if not caches[0].plain:
        raise ConfigError("these caches hold padded or packed tokens: read the prefix alone, without positions")
    content = {
        "format": FORMAT,
        "ids": ids.detach().cpu().clone(),
        "kinds": [_kind(cache) for cache in caches],
        "caches": [_owned(cache.state_dict()) for cache in caches],
        "model": fingerprint(model),
    }
    # into memory first: torch hides a full disk behind an error of its own
    archive = io.BytesIO()
    torch.save(content, archive)
    with atomic_file(path) as file:
        file.write(archive.getbuffer())
        file.write(hashlib.sha256(archive.getbuffer()).digest())


def load_prefix(path: str | Path, model: nn.Module, caches: Sequence[KVCache]) -> Tensor:
    """Fill caches with what a file of `save_prefix` holds; what they held before is forgotten.

    Nothing in the file is executed. To continue with a prompt that shares only its beginning with the prefix, crop the
    caches to `common(prompt, prefix)`.

    Args:
        path: the file.
        model: the model that wrote it, with the same weights.
        caches: from its `new_caches`, of the kind that was written.

    Returns:
        int64 (1,T), the tokens that the caches have read now.

    Raises:
        DataError: there is no such file, or it is broken or of something else.
        ConfigError: the file is of another model, other weights or other caches.
    """
    _check_caches(model, caches)
    content = _read(path, next((p.device for p in model.parameters()), torch.device("cpu")))
    if content["model"] != fingerprint(model):
        raise ConfigError(
            f"the prefix {str(path)!r} was read by another model, or by this one with other weights or settings: read "
            "the prompt anew with this model, and save it again"
        )
    kinds = [_kind(cache) for cache in caches]
    if kinds != content["kinds"]:
        raise ConfigError(
            f"the prefix {str(path)!r} is of the caches {_brief(content['kinds'])}, these are {_brief(kinds)}: choose "
            "the cache that it was saved with, or read the prompt anew"
        )
    ids = content["ids"]
    for cache in caches:
        cache.reset()
        cache.reserve(ids.size(1))
    try:
        for cache, state in zip(caches, content["caches"], strict=True):
            cache.load_state_dict(state)
        if any(cache.n_seen != ids.size(1) for cache in caches):
            raise ValueError(f"its caches do not hold its {ids.size(1)} tokens")
    except Exception as error:  # what is wrong inside a state is the business of its kind
        for cache in caches:
            cache.reset()
        if isinstance(error, ConfigError):
            raise
        raise _broken(path, error) from error
    return ids


def common(ids: Tensor, prefix_ids: Tensor) -> int:
    """How many tokens two rows share from the start on.

    Args:
        ids: int64 (1,T) or (T,), a new prompt. If the prefix holds all of it, its last token must be read again, since
            caches keep no logits: then crop to one less.
        prefix_ids: int64 (1,P) or (P,), what `load_prefix` gave.
    """
    a, b = ids.flatten(), prefix_ids.flatten().to(ids.device)
    n = min(len(a), len(b))
    return int((a[:n] == b[:n]).cumprod(0).sum())


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of all that decides what a model computes: weights (names, shapes, types, bytes) and settings.

    Two models of one fingerprint compute the same; speed settings that are plain values count too.

    Args:
        model: any.
    """
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        digest.update(f"{name} {_described(module)}\n".encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _described(value: object) -> str | None:
    """A plain value, or a module or an object of minitf by the plain values that it holds; None for anything else."""
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        return str([_described(v) for v in value])
    if isinstance(value, dict):
        return str([(key, _described(v)) for key, v in value.items()])
    if isinstance(value, nn.Module) or type(value).__module__.startswith("minitf."):
        # what a pass leaves behind, or a tap, is no setting; modules inside are described under their own names
        own = {
            key: _described(v)
            for key, v in vars(value).items()
            if key not in ("training", "tap") and not key.startswith("_") and not isinstance(v, nn.Module)
        }
        return f"{type(value).__qualname__} {sorted((key, v) for key, v in own.items() if v is not None)}"
    return None


def _kind(cache: KVCache) -> str:
    """A cache's kind, what it forgets, and the kinds of caches inside it."""
    inner = [_kind(value) for value in vars(cache).values() if isinstance(value, KVCache)]
    keeps = [] if cache.keeps is None else [f"window={cache.keeps[0]}", f"n_sink={cache.keeps[1]}"]
    renumbers = ["renumber"] if cache.raw_keys else []
    told = ", ".join([*inner, *keeps, *renumbers])
    return f"{type(cache).__name__}({told})" if told else type(cache).__name__


def _brief(kinds: Sequence[str]) -> str:
    """Each kind once, and how many of it."""
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)) or "none"


def _owned(state: Any) -> Any:
    """The same containers with tensors that share no memory, so that the file holds no more than they show."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: _owned(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_owned(value) for value in state)
    return state


def _check_caches(model: nn.Module, caches: Sequence[KVCache]) -> None:
    if hasattr(model, "encode"):
        raise ConfigError(
            f"a {type(model).__name__} reads a source, which a prefix does not hold: prefixes are for models that go "
            "on with a text, such as model=gpt_tiny"
        )
    if not caches:
        raise ConfigError("a prefix is what caches hold, and there are none: make them with new_caches")


def _read(path: str | Path, device: torch.device) -> dict[str, Any]:
    """The content of a prefix file, as `save_prefix` made it."""
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"there is no prefix file {str(path)!r}: save one with save_prefix") from None
    except OSError as error:
        raise _broken(path, error) from error
    archive, digest = raw[:-DIGEST], raw[-DIGEST:]
    if hashlib.sha256(archive).digest() != digest:
        raise _broken(path, ValueError("its checksum does not fit"))
    try:
        content = torch.load(io.BytesIO(archive), map_location=device, weights_only=True)
    except Exception as error:  # on foreign bytes the unpickler raises whatever it trips over
        raise _broken(path, error) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or set(content) != KEYS:
        raise _broken(path, ValueError(f"it is no {FORMAT!r}"))
    ids = content["ids"]
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != 2 or ids.size(0) != 1:
        raise _broken(path, ValueError("its tokens are no row of ids"))
    if not isinstance(content["kinds"], list) or not isinstance(content["caches"], list):
        raise _broken(path, ValueError("its caches are no list"))
    return content


def _broken(path: str | Path, error: Exception) -> DataError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(
        f"{str(path)!r} cannot be read as a prefix ({reason}). It may be cut short or come from another program: read "
        "the prompt anew, and save it again"
    )
