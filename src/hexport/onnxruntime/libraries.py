"""Backend libraries by the names that the documentation gives them, whatever platform those are of."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from pathlib import Path, PureWindowsPath

from hexport import facts
from hexport.errors import HexportError
from hexport.onnxruntime.fallback import warn

_NAME = re.compile(r"(?:lib)?(Qnn[a-z]+)(?:\.dll|\.so|\.dylib)?", re.IGNORECASE)


class WrongLibrary(HexportError, ValueError):
    """A backend library that QNN does not have; onnxruntime would leave every node on the CPU."""

    code = "HX952"


def backend_of(given: str, option: str) -> str:
    """The backend that a library's name or path stands for: ``htp`` for ``QnnHtp.dll``."""
    # Windows knows both separators, so this finds the name in paths of every platform.
    name = PureWindowsPath(given).name
    match = _NAME.fullmatch(name)
    stem = match[1].lower() if match else ""
    backend = next((known.name for known in facts.backends() if known.library.lower() == stem), None)
    if backend is None:
        raise WrongLibrary(
            f"{option}: {given!r} is no QNN backend library",
            why="with it onnxruntime would leave every node on the CPU and raise nothing",
            next=_suggestion(name),
        )
    if name != given and Path(given) != library_file(backend):
        warn(
            f"{option}: the installed package's own {library_name(backend)} is used instead of {given}: "
            "a library of another release does not start"
        )
    return backend


def library_name(backend: str) -> str:
    """What this platform calls the library."""
    known = facts.find_backend(backend)
    assert known is not None
    return f"{known.library}.dll" if sys.platform == "win32" else f"lib{known.library}.so"


def library_file(backend: str) -> Path | None:
    """The library in the installed onnxruntime-qnn, or None where that has none."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / library_name(backend)
    return file if file.exists() else None


def _suggestion(name: str) -> str:
    stems = [backend.library for backend in facts.backends()]
    known = [*(f"{stem}.dll" for stem in stems), *(f"lib{stem}.so" for stem in stems)]
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else "QnnHtp.dll or libQnnHtp.so is the NPU"
