"""What stands in ``record.json`` beside recorded calls: all that a bug report is asked for."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.observe.verdict import Verdict
from hexport.records import to_plain
from hexport.storage.installed import installed_version
from hexport.storage.keys import file_digest
from hexport.toolchain.interpreter import in_force
from hexport.version import __version__

RECORD = "record.json"
_NO_RESULTS = "the Saver backend writes calls and computes nothing: there are no results"


@dataclass(frozen=True)
class FileEntry:
    """A file by its name and content; where it lies is the user's own business."""

    name: str
    bytes: int
    sha256: str


def file_entry(path: Path) -> FileEntry:
    """Of a file that is there."""
    return FileEntry(path.name, path.stat().st_size, file_digest(path))


@dataclass(frozen=True)
class Versions:
    """Of everything that took part."""

    hexport: str
    python: str
    """hexport's own; a toolchain may have another."""
    system: str
    onnxruntime: str
    onnxruntime_qnn: str
    qnn_sdk: str
    """Empty when it is not known for that release."""
    toolchain: str
    """Empty for hexport's own Python."""

    @classmethod
    def now(cls) -> Versions:
        """Of what native code runs in at this moment."""
        release, chosen = facts.installed_release() or "", in_force()
        return cls(
            __version__,
            platform.python_version(),
            platform.platform(),
            installed_version("onnxruntime"),
            release,
            facts.sdk_of(release) or "",
            chosen.name if chosen else "",
        )


@dataclass(frozen=True)
class CallRecord:
    """The result of ``debug record``."""

    folder: str
    command: str
    model: FileEntry
    external: tuple[FileEntry, ...]
    """Files with weights of the model."""
    target: facts.Soc
    versions: Versions
    options: Mapping[str, str]
    """Of the provider."""
    custom_ops: tuple[FileEntry, ...]
    graphs: tuple[str, ...]
    calls: Mapping[str, int]
    """QNN function -> how often it is called."""
    verdict: Verdict
    """Which nodes are in the graphs, and why the others are not."""
    files: tuple[FileEntry, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``, and of the folder."""
        verdict = self.verdict.to_json()
        chip = self.target
        return {
            "schema_version": 1,
            "folder": self.folder,
            "command": self.command,
            "model": to_plain(self.model),
            "external": to_plain(self.external),
            "target": {"name": chip.chip, "soc_model": chip.soc_model, "htp_arch": chip.htp_arch},
            "versions": to_plain(self.versions),
            "options": dict(self.options),
            "custom_ops": to_plain(self.custom_ops),
            **{key: verdict[key] for key in ("scheme", "input_shapes", "nodes", "cpu_nodes")},
            "graphs": list(self.graphs),
            "calls": dict(self.calls),
            "files": to_plain(self.files),
            "results": None,
            "results_note": _NO_RESULTS,
            "warnings": list(self.notes),
        }


def record_bytes(record: CallRecord) -> bytes:
    """The file; the folder is not in it, because it will be sent elsewhere."""
    document = {key: value for key, value in record.to_json().items() if key != "folder"}
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()
