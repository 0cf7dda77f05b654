"""How a quantised program is trained before it is settled (QAT)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport.errors import UsageError

TRAINABLE = ("8a8w", "16a8w", "16a4w", "16a4w_block")
"""The schemes that ExecuTorch's quantiser can train."""


@dataclass(frozen=True)
class Training:
    """Either a function of the user's, or so many steps on the calibration samples.

    The function is called in the toolchain's interpreter with the prepared module, the samples as tuples of
    tensors, and the float module: as many of these as it takes. Without targets the float program teaches.
    """

    function: str = ""
    """``MODULE:FUNC`` or ``file.py:func``."""
    steps: int = 0
    lr: float = 1e-5
    targets: str = ""
    """An ``.npz``: an array for each output, whose first axis counts samples; whole numbers are classes."""
    seed: int = 0

    def __post_init__(self) -> None:
        if bool(self.function) == bool(self.steps):
            raise UsageError(
                "training needs a function of yours, or a number of steps",
                next="--qat MODULE:FUNC or --qat-steps N, and not both",
            )
        if self.steps < 0:
            raise UsageError(f"{self.steps} steps of training")
        if not 0 < self.lr < 1:
            raise UsageError(f"a learning rate of {self.lr:g} is not between 0 and 1")
        if self.targets and self.function:
            raise UsageError("targets are for hexport's own loop", next="read them in your function")
        if self.targets and not Path(self.targets).is_file():
            raise UsageError(f"there is no {self.targets}", next="give an .npz with an array for each output")


def check_trainable(scheme: str) -> None:
    """Refuse schemes that cannot be trained."""
    if scheme not in TRAINABLE:
        raise UsageError(
            f"{scheme} cannot be trained",
            why=f"ExecuTorch's quantiser trains {', '.join(TRAINABLE)}",
            next="leave the training out",
        )
