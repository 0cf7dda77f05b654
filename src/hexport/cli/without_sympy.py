"""onnx-ir without sympy, which it imports to reckon with named dims.

That is 470 modules, 35 MB and a third of a second, which most commands never need.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_SYMPY = "sympy"


class _Deferred(ModuleType):
    """Stands for sympy inside of onnx-ir; the real one is imported by the first who uses it."""

    in_place = True
    """As long as it is what ``import sympy`` gives."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # onnx-ir puts functions into a table while it is imported, and calls them later if at all.
        return _deferred(name) if self.in_place else getattr(importlib.import_module(_SYMPY), name)


def _deferred(name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(_SYMPY), name)(*arguments)

    return call


def import_onnx_ir() -> None:
    """Before anything else imports it; everybody else still gets the real sympy."""
    if _SYMPY in sys.modules or "onnx_ir" in sys.modules:
        return
    stand_in = _Deferred(_SYMPY)
    sys.modules[_SYMPY] = stand_in
    try:
        importlib.import_module("onnx_ir")
    finally:
        stand_in.in_place = False
        del sys.modules[_SYMPY]
