"""What a ``.pte`` does not say of itself, in ``NAME.pte.json`` beside it: names, scheme, target, placement.

A ``.pte`` numbers its inputs and outputs and has no word on how it was made. Whoever runs or verifies one
reads this file if it is there and belongs to it; a ``.pte`` without one can still be run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexport.errors import HexportError
from hexport.executorch.pte.partition import Partition
from hexport.records import RecordError, from_plain, to_plain
from hexport.whole_file import whole_or_absent

SCHEMA_VERSION = 1
_MOST_BYTES = 64 * 2**20
"""Larger ones are refused unread."""


class BadSidecar(HexportError, ValueError):
    """The file beside a ``.pte`` that describes it cannot be used."""

    code = "HX430"


@dataclass(frozen=True)
class TensorSpec:
    """An input or output, in the order of the ``.pte``."""

    name: str
    dtype: str
    """numpy's name of it: ``float32``, ``int64``, ``bool``."""
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Method:
    """One method of a ``.pte``; most have ``forward`` alone."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    partition: Partition
    program: str
    """The name of the file it was made of, or the factory."""
    program_sha256: str
    """Of the file; empty for a factory."""


@dataclass(frozen=True)
class Sidecar:
    """How a ``.pte`` was made, and what it holds."""

    hexport: str
    executorch: str
    qnn: str
    """Whose libraries compiled it: ``onnxruntime-qnn 2.5.0``, or the folder of an SDK."""
    scheme: str
    target: str
    """The chip."""
    soc_model: int
    htp_arch: int
    methods: tuple[Method, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The fields of ``LoweringOptions`` as they were applied."""
    calibration: str = ""
    """Where the samples came from, and how many."""
    notes: tuple[str, ...] = ()
    pte_sha256: str = ""
    runs_on_simulator: bool = True
    """False: the device can load it and this machine cannot, for the reason in the notes."""
    verified: Mapping[str, float | str] = field(default_factory=dict)
    """Method → dB of its worst output on the simulator, beside PyTorch; what was not run is not in it."""

    def method(self, name: str = "forward") -> Method | None:
        """The method of that name."""
        return next((method for method in self.methods if method.name == name), None)

    def to_json(self) -> dict[str, object]:
        plain: dict[str, object] = to_plain(self)
        return {"schema_version": SCHEMA_VERSION, **plain}


def sidecar_path(pte: Path) -> Path:
    """``model.pte`` → ``model.pte.json``."""
    return pte.with_name(f"{pte.name}.json")


def write_sidecar(pte: Path, sidecar: Sidecar) -> Path:
    """Beside ``pte``, whole or not at all."""
    path = sidecar_path(pte)
    with whole_or_absent(path) as part:
        part.write_text(json.dumps(sidecar.to_json(), indent=1) + "\n", "utf-8")
    return path


def find_sidecar(pte: Path) -> Sidecar | None:
    """That of ``pte``; None: it has none. One of another file, or a damaged one, is refused."""
    path = sidecar_path(pte)
    if not path.exists():
        return None
    sidecar = read_sidecar(path)
    if sidecar.pte_sha256 and sidecar.pte_sha256 != file_sha256(pte):
        raise BadSidecar(
            f"{path.name} does not describe {pte.name}",
            why="the .pte was written again, or another one was put in its place",
            next=f"lower the model again, or remove {path.name}: without it inputs go by their number",
        )
    return sidecar


def read_sidecar(path: Path) -> Sidecar:
    """The record in a file, or the error that tells what is wrong with it."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise RecordError(f"it is larger than {_MOST_BYTES >> 20} MB")
        document = json.loads(path.read_text("utf-8"))
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise RecordError(f"not a description of version {SCHEMA_VERSION}")
        return from_plain(Sidecar, {k: v for k, v in document.items() if k != "schema_version"})
    except (OSError, ValueError, RecursionError) as error:  # a RecordError is a ValueError
        raise BadSidecar(
            f"{path} cannot be used",
            why=str(error),
            next=f"lower the model again, or remove {path.name}: without it inputs go by their number",
        ) from error


def file_sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
