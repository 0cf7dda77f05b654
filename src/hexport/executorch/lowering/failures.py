"""What keeps a torch program from becoming a ``.pte``, each its own error."""

from __future__ import annotations

from hexport.errors import HexportError
from hexport.toolchain import WorkerError


class LoweringFailed(WorkerError):
    """ExecuTorch, or Qualcomm's compiler behind it, could not lower the program."""

    code = "HX431"


class ChipUnknown(HexportError, LookupError):
    """ExecuTorch has no name for the chip."""

    code = "HX432"


class NoFloatOnChip(HexportError):
    """fp16 was asked for, and the chip's NPU computes in integers only."""

    code = "HX433"


class OverrideUnmatched(HexportError, ValueError):
    """An override names nothing that is in the program, or asks for what cannot be."""

    code = "HX434"


class NotDelegated(HexportError):
    """Operators would not run on the NPU: all of them, or some where that was excluded."""

    code = "HX435"


class KernelMissing(HexportError):
    """Operators stay on the CPU that ExecuTorch has no kernel for: the file could not be loaded anywhere."""

    code = "HX436"


class SdkUnusable(HexportError):
    """The QNN SDK that was named cannot be used with this executorch."""

    code = "HX437"


class TrainingFailed(WorkerError):
    """The training of the quantised program did not come to an end."""

    code = "HX438"


class ShapesMisfit(WorkerError, ValueError):
    """The program cannot be made for those sizes."""

    code = "HX439"
