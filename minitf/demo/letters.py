"""Shapes in letters: which axis of a tensor is what."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig
from torch import nn

MEANING = {
    "B": "rows",
    "T": "tokens",
    "S": "tokens of the source",
    "D": "width of the residual stream",
    "H": "query heads",
    "G": "key/value heads",
    "d": "width of a head's query and key",
    "d_v": "width of a head's value",
    "c": "width of the latent that keys and values are made from",
    "r": "width of the rotary part",
    "F": "width inside the feed-forward network",
    "V": "tokens of the vocabulary",
    "C": "classes",
    "n": "tokens that chose the first expert, others differ",
}
# what the axes of a tap point, or of what a module of that name gives, stand for; t: the tokens of one of the sequences
AXES = {
    "ids": "B t",
    "src": "B t",
    "q": "B H t d",
    "k": "B G t d",
    "v": "B G t d_v",
    "score": "B H t t",
    "scores": "B H t t",
    "weights": "B H t t",
    "heads": "B H t d_v",
    "w_q": "B t H*d",
    "w_k": "B t G*d",
    "w_v": "B t G*d_v",
    "w_kv_down": "B t c",
    "kv_norm": "B t c",
    "w_k_rotary": "B t r",
    "merged heads": "B t H*d_v",
    "w_in": "B t F",
    "w_gate": "B t F",
    "hidden": "B t F",
    "head": "B t V",
}


# what else an axis may turn out to be; rows and tokens may lie in one axis
OTHERS = {
    "t": ("T", "S"),
    "B": ("B", "B*T", "B*S"),
    "D": ("D", "V", "C"),
    "V": ("V", "D", "C"),
}


class Letters:
    """Letters for the axes of one model's tensors.

    Args:
        model: the built model.
        config: its config, for the sizes.
        batch, length: rows B, tokens T.
        src_length: tokens S of the other sequence, or None.

    Attributes:
        used: letter -> its size, of those that were needed.
    """

    def __init__(self, model: nn.Module, config: DictConfig, batch: int, length: int, src_length: int | None) -> None:
        self._modules = dict(model.named_modules())
        self._common = {"B": batch, "T": length, "S": src_length, "D": config.model.d_model}
        self._common |= {"V": config.data.vocab_size, "C": config.data.n_classes}
        self.used: dict[str, int] = {}

    def of(self, name: str, shape: Sequence[int]) -> str:
        """For example "(B, H, T, d)"; a number stays where no letter fits.

        Args:
            name: of a module or a tap point.
            shape: of its tensor.
        """
        sizes = self._common | self._own(name)
        axes = AXES.get(name.rpartition(".")[2], "B t D").split()
        if len(axes) != len(shape):
            axes = ["B", *["t"] * (len(shape) - 2), axes[-1]][-len(shape) :]
        if "experts" in name.split("."):  # an expert gets tokens of all rows
            axes, sizes["n"] = ["n", axes[-1]], shape[0]
        if "head" not in name.split("."):
            sizes["C"] = None
        return f"({', '.join(self._letter(axis, n, sizes) for axis, n in zip(axes, shape, strict=True))})"

    def _letter(self, axis: str, n: int, sizes: dict[str, int | None]) -> str:
        for name in OTHERS.get(axis, (axis,)):
            factors = [self._shorter(letter, sizes) for letter in name.split("*")]
            product = 1
            for letter in factors:
                product *= sizes.get(letter) or 0
            if product == n:
                self.used |= {letter: sizes[letter] for letter in factors if letter not in self.used}
                return "*".join(factors)
        return str(n)

    @staticmethod
    def _shorter(letter: str, sizes: dict[str, int | None]) -> str:
        """One letter for two sizes that are the same thing: G is H where every head has keys of its own."""
        same = {"G": "H", "d_v": "d"}.get(letter, letter)
        return same if sizes.get(same) == sizes.get(letter) else letter

    def _own(self, name: str) -> dict[str, int]:
        """Sizes of the attention block or feed-forward network that a tensor belongs to."""
        sizes: dict[str, int] = {}
        while name:
            module = self._modules.get(name)
            if not sizes and hasattr(module, "w_in"):
                sizes["F"] = module.w_in.out_features
            if hasattr(module, "n_heads") and hasattr(module, "d_head"):
                shared = getattr(module, "n_kv_heads", module.n_heads)
                projection = getattr(module, "projection", module)
                d_value = getattr(projection, "d_value", module.d_head)
                if hasattr(projection, "d_latent"):
                    sizes |= {"c": projection.d_latent, "r": projection.d_rotary}
                return sizes | {"H": module.n_heads, "G": shared, "d": module.d_head, "d_v": d_value}
            name = name.rpartition(".")[0]
        return sizes
