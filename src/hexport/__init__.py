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
    from hexport.building.verb import build as build
    from hexport.comparison.verb import compare as compare
    from hexport.compiling.verb import compile as compile  # noqa: A004 - the verb's own name
    from hexport.diagnosis import doctor as doctor
    from hexport.executorch.building.verb import build_pte as build_pte
    from hexport.executorch.conversion.verb import convert as convert
    from hexport.facts import targets as targets
    from hexport.inspection.verb import inspect as inspect
    from hexport.observe.check import check as check
    from hexport.packaging import open_package as open_package
    from hexport.packaging import pack as pack
    from hexport.packaging import unpack as unpack
    from hexport.preparation.verb import prepare as prepare
    from hexport.quantization.verb import quantize as quantize
    from hexport.runtime.loading import load as load
    from hexport.runtime.running import run as run
    from hexport.snippets.verb import snippet as snippet
    from hexport.storage.upkeep import cache as cache
    from hexport.verification.verb import verify as verify
    from hexport.wrapping.verb import wrap as wrap

# Public name -> the module that has it.
_WHERE = {
    "build": "hexport.building.verb",
    "build_pte": "hexport.executorch.building.verb",
    "cache": "hexport.storage.upkeep",
    "check": "hexport.observe.check",
    "compare": "hexport.comparison.verb",
    "compile": "hexport.compiling.verb",
    "convert": "hexport.executorch.conversion.verb",
    "doctor": "hexport.diagnosis",
    "inspect": "hexport.inspection.verb",
    "load": "hexport.runtime.loading",
    "open_package": "hexport.packaging",
    "pack": "hexport.packaging",
    "prepare": "hexport.preparation.verb",
    "quantize": "hexport.quantization.verb",
    "run": "hexport.runtime.running",
    "snippet": "hexport.snippets.verb",
    "targets": "hexport.facts",
    "unpack": "hexport.packaging",
    "verify": "hexport.verification.verb",
    "wrap": "hexport.wrapping.verb",
}

__all__ = [
    "HexportError",
    "__version__",
    "build",
    "build_pte",
    "cache",
    "check",
    "compare",
    "compile",
    "convert",
    "doctor",
    "inspect",
    "load",
    "open_package",
    "pack",
    "prepare",
    "quantize",
    "run",
    "snippet",
    "targets",
    "unpack",
    "verify",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hexport' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
