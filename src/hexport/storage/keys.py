"""What a result depends on, as one name: inputs by content, options by value, tools by version and code."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_TOOLS = ("onnxruntime", "onnxruntime-qnn", "onnx", "onnx-ir", "onnxscript", "onnxslim", "numpy")


def key_of(step: str, **parts: object) -> str:
    """A name for the result of ``step`` on ``parts``, which JSON must be able to write."""
    document = {"step": step, "parts": parts, "tools": _tools(), "hexport": _own_code()}
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The content of a file; read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _tools() -> dict[str, str]:
    found = {}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


@cache
def _own_code() -> str:
    """hexport's own files: a version number stays the same while code is worked on."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml")]):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()
