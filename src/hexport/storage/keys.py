"""What a result depends on, as one name: inputs by content, options by value, tools by version and code."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

from hexport.storage.installed import installed_version

_TOOLS = ("onnxruntime", "onnxruntime-qnn", "onnx", "onnx-ir", "onnxscript", "onnxslim", "numpy")


def key_of(step: str, **parts: object) -> str:
    """A name for the result of ``step`` on ``parts``, which JSON must be able to write."""
    document = {"step": step, "parts": parts, "tools": _tools(), "hexport": own_code()}
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The content of a file; read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tools() -> dict[str, str]:
    return {name: installed_version(name) for name in _TOOLS}


@cache
def own_code() -> str:
    """hexport's own files: a version number stays the same while code is worked on."""
    package = str(Path(__file__).parents[1])
    files = [
        os.path.join(place, name)  # noqa: PTH118 - as texts, which takes a third of the time
        for place, _, names in os.walk(package)
        for name in names
        if name.endswith((".py", ".toml"))
    ]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.removeprefix(package).replace(os.sep, "/").encode() + b"\0")
        with open(path, "rb") as file:  # noqa: PTH123
            digest.update(file.read())
    return digest.hexdigest()
