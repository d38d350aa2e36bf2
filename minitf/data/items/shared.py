"""Items that a hash shares out to training and validation."""

from __future__ import annotations

from typing import Any, ClassVar

from minitf.data.items import ItemSource, check_share
from minitf.data.wheel import Wheel


class SharedOut(ItemSource):
    """A data set made of a file of a wheel, of which one item in so many is validation.

    Args:
        val_one_in: the number.

    Raises ConfigError for a share that cannot be.

    Attributes:
        wheel: the package that holds the file.
    """

    wheel: ClassVar[Wheel]

    def __init__(self, val_one_in: int = 10) -> None:
        self.val_one_in = check_share("val_one_in", val_one_in)

    def depends_on(self) -> dict[str, Any]:
        return {"wheel": self.wheel.sha256, "val_one_in": self.val_one_in}
