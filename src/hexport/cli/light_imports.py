"""onnx-ir and onnxscript without what they import and most commands never use.

sympy, with which onnx-ir reckons with named dims, is 470 modules, 35 MB and a third of a second; ONNX's
reference implementation, with which onnxscript folds constants, is 20 MB; onnxscript's language, which its
rewriter does without, is 60 modules and 7 MB. The first who uses one of them has it imported.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
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


class _Package(ModuleType):
    """A package whose own code runs when something in it is asked for that is no module of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        if not name.startswith("__") and find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert isinstance(self.__loader__, Loader)
        self.__loader__.exec_module(self)
        return getattr(self, name)


class _Later(Loader):
    """Makes a package without running its code."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        _give_back(module, self._own)


class _Around(Loader):
    """Loads a module as its own loader does, inside of something else."""

    def __init__(self, own: Loader, around: Callable[[ModuleType], AbstractContextManager[None]]) -> None:
        self._own, self._around = own, around

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        _give_back(module, self._own)
        with self._around(module):
            self._own.exec_module(module)


def _give_back(module: ModuleType, own: Loader) -> None:
    """As if its own loader had been found at once."""
    module.__loader__ = own
    if module.__spec__ is not None:
        module.__spec__.loader = own


class _Finder(MetaPathFinder):
    """Finds the three libraries, whenever somebody comes to import them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = _LOADERS.get(fullname)
        spec = None if loader is None else PathFinder.find_spec(fullname, path, target)
        if loader is not None and spec is not None and spec.loader is not None:
            spec.loader = loader(spec.loader)
        return spec


def import_lightly() -> None:
    """From now on; what was imported before is left as it is."""
    if "onnx" in sys.modules or _SYMPY in sys.modules or any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())


@contextmanager
def without_collecting() -> Iterator[None]:
    """Imports leave no garbage, and what they leave stays: the collector need not look, now or later."""
    # Whoever calls a command from a program of their own may have garbage, which must not stay.
    first = "onnx_ir" not in sys.modules and gc.isenabled()
    if first:
        gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()
            gc.enable()


@contextmanager
def _with_waiting_reference(onnx: ModuleType) -> Iterator[None]:
    yield
    for name in (_REFERENCE, f"{_REFERENCE}.ops"):
        sys.modules.setdefault(name, _Waiting(name))
    onnx.reference = sys.modules[_REFERENCE]  # type: ignore[attr-defined]  # as an import does


@contextmanager
def _without_sympy(_: ModuleType) -> Iterator[None]:
    if _SYMPY in sys.modules:
        yield
        return
    stand_in = _Deferred(_SYMPY)
    sys.modules[_SYMPY] = stand_in
    try:
        yield
    finally:
        stand_in.in_place = False
        del sys.modules[_SYMPY]


_LOADERS: dict[str, Callable[[Loader], Loader]] = {
    "onnx": partial(_Around, around=_with_waiting_reference),
    "onnx_ir": partial(_Around, around=_without_sympy),
    "onnxscript": _Later,
}
