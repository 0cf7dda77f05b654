"""onnx-ir and onnxscript without what they import and most commands never use.

sympy, with which onnx-ir reckons with named dims, is 470 modules, 35 MB and a third of a second; ONNX's
reference implementation, with which onnxscript folds constants, is 20 MB. The first who uses one of them has
it imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_SYMPY = "sympy"
_REFERENCE = "onnx.reference"


class _Deferred(ModuleType):
    """Stands for sympy inside of onnx-ir."""

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


class _Waiting(ModuleType):
    """Is what an import gives until something in it is asked for; then the real ones take their places."""

    def __getattr__(self, name: str) -> Any:
        waiting = [name for name, module in sys.modules.items() if isinstance(module, _Waiting)]
        for each in waiting:
            del sys.modules[each]
        for each in waiting:
            importlib.import_module(each)
        return getattr(importlib.import_module(self.__name__), name)


def import_lightly() -> None:
    """Before anything else imports them."""
    if "onnx" in sys.modules or _SYMPY in sys.modules:
        return
    onnx = importlib.import_module("onnx")
    for name in (_REFERENCE, f"{_REFERENCE}.ops"):
        sys.modules[name] = _Waiting(name)
    onnx.reference = sys.modules[_REFERENCE]  # type: ignore[attr-defined]  # as an import does
    _import_onnx_ir()


def _import_onnx_ir() -> None:
    stand_in = _Deferred(_SYMPY)
    sys.modules[_SYMPY] = stand_in
    try:
        importlib.import_module("onnx_ir")
    finally:
        stand_in.in_place = False
        del sys.modules[_SYMPY]
