"""What lowering made, and what there is to know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from pathlib import Path

from hexport.executorch.pte.sidecar import Sidecar
from hexport.records import to_plain

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Lowered:
    """A ``.pte``, or with the Saver backend a folder of recorded calls."""

    output: Path
    """The ``.pte``; the folder where calls were recorded."""
    description: Sidecar
    bytes: int
    seconds: float
    steps: Mapping[str, float]
    """Step → its seconds."""
    quantised_db: Mapping[str, float | None]
    """Method → how close the quantised program is to the float one on held-out samples, on the CPU."""
    sidecar: Path | None = None
    quantised: Mapping[str, Path] | None = None
    """Method → the quantised program, if it was kept."""
    compiled: bool = True
    """False: calls were recorded, and there is no ``.pte``."""

    @property
    def notes(self) -> tuple[str, ...]:
        return self.description.notes

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        shares = {
            method.name: {
                "nodes": round(method.partition.node_share, 4),
                "macs": round(method.partition.mac_share, 4),
                "delegates": len(method.partition.delegates),
                "cpu_nodes": len(method.partition.cpu),
            }
            for method in self.description.methods
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "output": str(self.output),
            "compiled": self.compiled,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "steps": dict(self.steps),
            "delegated": shares,
            "quantised_db": {name: _decibels(value) for name, value in self.quantised_db.items()},
            "sidecar": str(self.sidecar) if self.sidecar else None,
            "quantised": {name: str(path) for name, path in (self.quantised or {}).items()},
            "description": to_plain(self.description),
        }


def _decibels(value: float | None) -> float | str | None:
    """JSON has no infinity."""
    if value is None:
        return None
    return "exact" if isinf(value) else round(value, 2)
