"""``onnxruntime.quantization`` with its known faults mended; every other name is the real package's own.

``quantize`` and its kin are given a copy of the model in which weights are weights and every tensor has a
type (see ``readying.py``): what the real quantiser stops at, or takes for an activation, in real models.
"""

from __future__ import annotations

import importlib
from typing import Any

from hexport.errors import MissingDependency
from hexport.onnxruntime.quantization.readying import QuantizerFault, mended

try:
    _real = importlib.import_module("onnxruntime.quantization")
except ImportError as error:  # it needs onnx, which the core install has not
    raise MissingDependency(
        "quantising needs packages that are not installed",
        why=str(error),
        next="pip install 'hexport[build]'",
    ) from error

__all__ = ["QuantizerFault", "quantize", "quantize_dynamic", "quantize_static"]

quantize = mended(_real.quantize)
quantize_static = mended(_real.quantize_static)
quantize_dynamic = mended(_real.quantize_dynamic)


def __getattr__(name: str) -> Any:
    return getattr(_real, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_real)})
