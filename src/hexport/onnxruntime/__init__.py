"""ONNX Runtime as its QNN pages document it: ``import hexport.onnxruntime as onnxruntime``.

What differs from the real package is here: sessions on the QNN provider, options that are looked at, and the
quantisation tools with their faults mended. Every other name is the real package's own.
"""

from __future__ import annotations

from typing import Any

from hexport.backend.sessions import PROVIDER, import_onnxruntime
from hexport.onnxruntime.fallback import CpuFallback, CpuFallbackWarning, QnnWarning
from hexport.onnxruntime.libraries import WrongLibrary
from hexport.onnxruntime.options import RunOptions, SessionOptions
from hexport.onnxruntime.session import InferenceSession

__all__ = [
    "CpuFallback",
    "CpuFallbackWarning",
    "InferenceSession",
    "QnnWarning",
    "RunOptions",
    "SessionOptions",
    "WrongLibrary",
    "get_available_providers",
]


def get_available_providers() -> list[str]:
    """The real package's list, and the plugin's provider, which that list leaves out."""
    import importlib.util

    known: list[str] = import_onnxruntime().get_available_providers()
    plugin = importlib.util.find_spec("onnxruntime_qnn") is not None
    return [PROVIDER, *(name for name in known if name != PROVIDER)] if plugin else known


def __getattr__(name: str) -> Any:
    if name == "quantization":
        import importlib

        return importlib.import_module("hexport.onnxruntime.quantization")
    return getattr(import_onnxruntime(), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "quantization", *dir(import_onnxruntime())})
