"""Hide tokens for masked language modelling."""

from collections.abc import Collection
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from minitf.errors import ConfigError

IGNORED = -100  # a target that is not scored


@lru_cache(maxsize=8)
def _ordinary(vocab_size: int, special: frozenset[int]) -> np.ndarray:
    """The ids that are not special: the same ones in every batch of a run."""
    found = np.setdiff1d(np.arange(vocab_size), list(special))
    found.setflags(write=False)
    return found


class MaskTokens:
    """Choose a share of a row's tokens: most become the mask, some a random token, the rest stays.

    In a row with n tokens that may be chosen, exactly max(1, round(rate * n)) are: so at least one wherever there is
    any. What becomes of each is drawn independently. A random token may happen to be the one that stood there.

    Args:
        rate: share of the tokens that are chosen, above 0 and at most 1.
        mask: probability that a chosen token becomes the mask.
        random: probability that it becomes a random token that is not special; with 1 - mask - random it stays.

    Raises:
        ConfigError: numbers outside of these bounds.

    Source: Devlin et al. 2019 (BERT), section 3.1.
    """

    def __init__(self, rate: float = 0.15, mask: float = 0.8, random: float = 0.1) -> None:
        if not all(isinstance(share, int | float) and share == share for share in (rate, mask, random)):
            raise ConfigError(f"task.rate, task.mask and task.random must be numbers, got {rate}, {mask} and {random}")
        if not 0 < rate <= 1:
            raise ConfigError(f"task.rate ({rate}) must be above 0 and at most 1: 0.15 is usual")
        if min(mask, random) < 0 or mask + random > 1 + 1e-9:
            raise ConfigError(
                f"task.mask ({mask}) and task.random ({random}) are shares of the chosen tokens: they must be at least "
                "0 and together at most 1; 0.8 and 0.1 are usual"
            )
        self.rate, self.mask, self.random = rate, mask, random

    def __call__(
        self,
        ids: Tensor,
        real: Tensor,
        rng: np.random.Generator,
        *,
        mask_id: int | None,
        special_ids: Collection[int],
        vocab_size: int,
    ) -> tuple[Tensor, Tensor]:
        """Hide tokens of a batch; a pure function of its arguments and the state of `rng`.

        Args:
            ids: int64 (B,T); stays as it is.
            real: bool (B,T), False at padding and wherever else nothing may be chosen.
            rng: the draws depend on the shape of ids alone.
            mask_id: the tokenizer's mask token; special like those of special_ids.
            special_ids: ids that are never chosen, nor drawn as a random token.
            vocab_size: number of ids V.

        Returns:
            ids with hidden tokens, and targets: the token that stood there at chosen places, -100 elsewhere.

        Raises:
            ConfigError: there is no mask token, or no token that is not special.
        """
        if mask_id is None:
            raise ConfigError("task=masked_lm needs a tokenizer with a mask token: choose data that has one")
        special = {mask_id, *special_ids}
        ordinary = _ordinary(vocab_size, frozenset(special))
        if not len(ordinary):
            raise ConfigError(f"all {vocab_size} ids are special: there is no token to hide")
        before = ids.numpy()
        may = real.numpy() & ~np.isin(before, list(special))
        chosen = self._choose(may, rng)
        fate = rng.random(before.shape)
        drawn = ordinary[rng.integers(len(ordinary), size=before.shape)]
        after = np.where(chosen & (fate < self.mask), mask_id, before)
        after = np.where(chosen & (fate >= self.mask) & (fate < self.mask + self.random), drawn, after)
        return torch.from_numpy(after), torch.from_numpy(np.where(chosen, before, IGNORED))

    def _choose(self, may: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Of the places of each row that may be chosen, as many as the class says."""
        n_may = may.sum(-1)
        n = np.where(n_may > 0, np.maximum(1, np.floor(self.rate * n_may + 0.5)), 0)
        # the places in random order, those that may not be chosen last
        order = np.argsort(np.where(may, rng.random(may.shape), 2.0), axis=-1)
        rank = np.argsort(order, axis=-1)
        return rank < n[:, None]
