"""What ``build`` made, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport.building.padding_proof import Proof
from hexport.packaging.manifest import Manifest
from hexport.records import to_plain


@dataclass(frozen=True)
class Built:
    """A package, and what was found out on the way to it."""

    output: Path
    manifest: Manifest
    met: bool
    """Whether the accuracy asked for was reached, in the quantiser's search and in the verification."""
    shortfalls: tuple[str, ...]
    proofs: tuple[Proof, ...]
    source_bytes: int
    package_bytes: int
    seconds: float
    steps_made: dict[str, int]
    steps_taken: dict[str, int]
    """From the cache."""

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "output": str(self.output),
            "met": self.met,
            "shortfalls": list(self.shortfalls),
            "scheme": self.manifest.scheme,
            "targets": [target.name for target in self.manifest.targets],
            "buckets": [to_plain(bucket) for bucket in self.manifest.buckets],
            "verification": [to_plain(one) for one in self.manifest.verification],
            "padding": [proof.to_json() for proof in self.proofs],
            "artefacts": [to_plain(one) for one in self.manifest.artefacts],
            "bytes_before": self.source_bytes,
            "bytes_after": self.package_bytes,
            "seconds": round(self.seconds, 1),
            "cache": {"made": self.steps_made, "taken": self.steps_taken},
            "warnings": list(self.manifest.notes),
        }
