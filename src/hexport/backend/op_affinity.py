"""``op_affinity``: the JSON file that pins operator types, read before the provider reads it.

The provider takes the last of two entries for one operator, and passes over whatever else is in the file.
Comments are allowed, as the provider allows them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hexport.backend.given_options import Given, known_options
from hexport.facts import current_platform

_FORM = '{"op_type": {"Softmax": "cpu"}}'
_BACKENDS = ("cpu", "gpu", "dsp", "htp")
"""Names that the 2.7.0 provider knows, in any case."""
_MOST = 2**20
# A text is taken whole, so that what looks like a comment inside it stays.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


class _Wrong(Exception):
    """Why the file would not do what it says."""


def affinity_problem(value: str, given: Given) -> str:
    """What is wrong with the file for this session; empty when nothing is."""
    if given.platform != current_platform():
        return ""  # it is another machine's file
    try:
        pins = _pins(value)
        _refuse_other_backends(pins, given)
    except _Wrong as wrong:
        return f"op_affinity: {value}: {wrong}"
    return ""


def pinned_types(value: str) -> dict[str, str]:
    """Operator type -> backend, of a file that has no problem."""
    return _pins(value)


def whole_path(value: str) -> str:
    """A worker has another current folder."""
    return str(Path(value).absolute())


def _pins(value: str) -> dict[str, str]:
    document = _document(Path(value))
    if not isinstance(document, dict) or not isinstance(document.get("op_type"), dict):
        raise _Wrong(f'it needs an object "op_type", as in {_FORM}')
    if others := [key for key in document if key != "op_type"]:
        raise _Wrong(f'{others[0]!r} is not read; only "op_type" is')
    pins = {op: _backend(op, pinned) for op, pinned in document["op_type"].items()}
    if not pins:
        raise _Wrong("it pins nothing")
    return pins


def _document(path: Path) -> Any:
    try:
        if path.stat().st_size > _MOST:
            raise _Wrong(f"it is larger than {_MOST} bytes, so it is something else")
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise _Wrong(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _Wrong(f"it is no text: {error.reason} at byte {error.start}") from error
    try:
        return json.loads(_COMMENT.sub(_without_comment, text), object_pairs_hook=_each_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _Wrong(f"it is no JSON: {error}") from error


def _without_comment(found: re.Match[str]) -> str:
    # Line breaks stay, so that a fault is told with its right line.
    return found[1] or "\n" * found[0].count("\n") or " "


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Wrong(f"{key!r} is given twice, and the provider would take the last")
        result[key] = value
    return result


def _backend(op: str, pinned: object) -> str:
    one = pinned[0] if isinstance(pinned, list) and len(pinned) == 1 else pinned
    if not isinstance(one, str):
        raise _Wrong(f"{op}: give one backend, as in {_FORM}")
    if one.lower() not in _BACKENDS:
        raise _Wrong(f"{op}: there is no backend {one!r}; the provider knows {', '.join(_BACKENDS)}")
    return one.lower()


def _refuse_other_backends(pins: dict[str, str], given: Given) -> None:
    """An operator stays on this session's backend or goes to the CPU; there is no third place."""
    if given.value("backend_path"):
        return  # the library alone says what it is
    running = given.value("backend_type") or known_options()["backend_type"].default
    for op, backend in pins.items():
        if backend not in ("cpu", running):
            raise _Wrong(f"{op}: is pinned to {backend}; this session can have it on {running} or cpu")
