"""hexport: any ONNX or PyTorch model to a verified, fast deployment on Qualcomm's NPU.

Each verb of the command line is a function here, with the same name and options. They are loaded
when first used, so that ``import hexport`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hexport.errors import HexportError
from hexport.version import __version__

if TYPE_CHECKING:
    from hexport.diagnosis import doctor as doctor
    from hexport.facts import targets as targets
    from hexport.observe.check import check as check
    from hexport.preparation.verb import prepare as prepare
    from hexport.quantization.verb import quantize as quantize

# Public name -> the module that has it.
_WHERE = {
    "check": "hexport.observe.check",
    "doctor": "hexport.diagnosis",
    "prepare": "hexport.preparation.verb",
    "quantize": "hexport.quantization.verb",
    "targets": "hexport.facts",
}

__all__ = ["HexportError", "__version__", "check", "doctor", "prepare", "quantize", "targets"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hexport' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
