"""Infilling: a masked language model fills the masked places of a text, the surest ones first.

Source: Ghazvininejad et al. 2019 (mask-predict), Chang et al. 2022 (MaskGIT), section 3.2: what is filled stays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.errors import ConfigError
from minitf.generation.generate import Sampler
from minitf.generation.mode import evaluating


@dataclass
class Filled:
    """The text after one step of `infill`.

    Attributes:
        ids: int64 (B,T); what is not filled yet is `mask_id`.
        fixed: bool (B,T), the places that this step has filled.
        logprobs: float32 (B,T), at those the natural log of the model's own probability of the token that was chosen
            (before temperature and filters, among the tokens that are allowed); 0 elsewhere.
    """

    ids: Tensor
    fixed: Tensor
    logprobs: Tensor


def infill(
    model: nn.Module,
    ids: Tensor,
    *,
    mask_id: int,
    n_steps: int | None = None,
    sampler: Sampler,
    pos: Tensor | None = None,
    seeds: Sequence[int] | None = None,
    special_ids: Collection[int] = (),
) -> Iterator[Filled]:
    """Fill every masked place. Each step chooses a token for all of them and keeps the most probable ones.

    With `n_steps` the cosine schedule of MaskGIT is followed: m masked places are floor(m cos(pi/2 s/n_steps)) after
    step s, and at least one fewer than before, so that few are filled while little is known. The rule depends on the
    row alone, so a row is filled in a batch as it is alone. Of equal probabilities the leftmost place comes first.

    Args:
        model: gives logits (B,T,V) for (ids, pos), and reads in both directions, such as bert_tiny.
        ids: int64 (B,T), with `mask_id` at the places to fill.
        mask_id: stands for a hidden token; it is never chosen.
        n_steps: passes of the model at most; None fills one place of each row at a time, 1 all at once.
        sampler: chooses a token from each row of logits.
        pos: (B or 1, T) positions, -1 at padded places; None: there are none.
        seeds: one seed per row for the sampler; None means 0, 1, ...
        special_ids: other ids that are never chosen.

    Returns:
        An iterator of one `Filled` per step, until nothing is masked.

    Raises:
        ConfigError: at once, for a text without a masked place, a model that does not see what comes, or values
            outside their range; at the first step, for a model that does not predict tokens.
    """
    masked = ids == mask_id
    if pos is not None:
        masked = masked & (pos >= 0)
    if not masked.any():
        raise ConfigError(f"no place is masked: put the mask id ({mask_id}) where the text is to be filled")
    banned = sorted({mask_id, *special_ids})
    _check(model, ids, n_steps, seeds)
    generators = [torch.Generator(ids.device).manual_seed(s) for s in (seeds or range(ids.size(0)))]
    return _steps(model, ids, pos, masked, banned, n_steps, sampler, generators)


def _steps(
    model: nn.Module,
    ids: Tensor,
    pos: Tensor | None,
    masked: Tensor,
    banned: Sequence[int],
    n_steps: int | None,
    sampler: Sampler,
    generators: Sequence[torch.Generator],
) -> Iterator[Filled]:
    n_masked = masked.sum(-1).tolist()
    for step in range(1, max(n_masked) + 1):
        with evaluating(model):
            logits = model(ids, pos)
            _check_logits(logits, ids, banned)
            chosen, logprobs = _choose(logits, masked, banned, sampler, generators)
            fixed = torch.zeros_like(masked)
            for row, n in enumerate(masked.sum(-1).tolist()):
                n_left = max(0, min(n - 1, _left(n_masked[row], step, n_steps)))
                surest = logprobs[row].sort(descending=True, stable=True).indices
                fixed[row, surest[: n - n_left]] = True
            ids = torch.where(fixed, chosen, ids)
            masked = masked & ~fixed
        yield Filled(ids.clone(), fixed, torch.where(fixed, logprobs, 0.0))
        if not masked.any():
            return


def _choose(
    logits: Tensor,
    masked: Tensor,
    banned: Sequence[int],
    sampler: Sampler,
    generators: Sequence[torch.Generator],
) -> tuple[Tensor, Tensor]:
    """A token for each masked place (B,T), and its log probability, which is -inf elsewhere."""
    rows, places = masked.nonzero(as_tuple=True)
    # a row draws for its places from left to right, so that it draws the same in any batch
    logits = logits[rows, places].float()  # (n,V)
    logits[:, banned] = float("-inf")
    drawn = sampler(logits, [generators[row] for row in rows.tolist()])
    chosen = torch.zeros(masked.shape, dtype=torch.long, device=masked.device)
    logprobs = torch.full(masked.shape, float("-inf"), device=masked.device)
    chosen[rows, places] = drawn
    logprobs[rows, places] = logits.log_softmax(-1).gather(-1, drawn[:, None])[:, 0]
    return chosen, logprobs


def _left(n: int, step: int, n_steps: int | None) -> int:
    """How many of n masked places the schedule leaves after a step."""
    if n_steps is None:
        return n - step
    share = math.cos(math.pi / 2 * min(1.0, step / n_steps))
    return math.floor(n * share + 1e-9)  # a whole number stays one, whatever the last digit of the cosine


def _check(model: nn.Module, ids: Tensor, n_steps: int | None, seeds: Sequence[int] | None) -> None:
    if not getattr(model, "sees_future", True):
        raise ConfigError(
            f"this {type(model).__name__} reads only what stands before a place: infilling needs a model that reads "
            "both sides, such as model=bert_tiny, trained with task=masked_lm"
        )
    if n_steps is not None and (not isinstance(n_steps, int) or isinstance(n_steps, bool) or n_steps < 1):
        raise ConfigError(
            f"n_steps must be a whole number of at least 1, or null for one place a step, got {n_steps!r}"
        )
    if seeds is not None and not all(0 <= seed < 2**63 for seed in seeds):
        raise ConfigError(f"seeds must be whole numbers from 0 to 2**63 - 1, got {list(seeds)}")
    if seeds is not None and len(seeds) != ids.size(0):
        raise ConfigError(f"{ids.size(0)} rows need as many seeds, got {len(seeds)}")


def _check_logits(logits: Tensor, ids: Tensor, banned: Sequence[int]) -> None:
    if logits.dim() != 3 or logits.shape[:2] != ids.shape or not -1 < banned[0] <= banned[-1] < logits.size(-1):
        raise ConfigError(
            f"for ids {tuple(ids.shape)} this model gives {tuple(logits.shape)}, which are no logits of tokens among "
            f"them {list(banned)}: infilling needs model/head=masked_lm"
        )
    if len(banned) == logits.size(-1):
        raise ConfigError("every token is the mask or special: there is nothing to fill a place with")
