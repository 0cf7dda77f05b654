"""What ``compile --format dlc`` made: files, what they say of themselves, and what is in none of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport.inspection.dlc import Dlc
from hexport.inspection.dlc_graph import DlcGraph
from hexport.observe.verdict import Verdict
from hexport.records import to_plain


@dataclass(frozen=True)
class DlcFile:
    """One graph in a file."""

    path: Path
    size: int
    content: Dlc
    """Read back from it."""

    @property
    def graph(self) -> DlcGraph:
        return self.content.contents[0]

    def to_json(self) -> dict[str, object]:
        graph = to_plain(self.graph)
        return {
            "path": str(self.path),
            "size": self.size,
            "sdk": self.content.sdk,
            "weight_bytes": self.content.weight_bytes,
            "graph": graph.pop("name"),
            **graph,
        }


@dataclass(frozen=True)
class ExportedModel:
    """One model and the files that it became."""

    source: str
    files: tuple[DlcFile, ...]
    verdict: Verdict
    """What is in the files, and why the rest is not."""

    def to_json(self) -> dict[str, object]:
        verdict = self.verdict.to_json()
        keys = (
            "scheme",
            "input_shapes",
            "nodes",
            "macs",
            "partitions",
            "cpu_nodes",
            "io_quantization",
            "full",
        )
        return {
            "source": self.source,
            "files": [file.to_json() for file in self.files],
            **{key: verdict[key] for key in keys},
        }


@dataclass(frozen=True)
class Exported:
    """The result of ``compile --format dlc``."""

    output: Path
    models: tuple[ExportedModel, ...]
    warnings: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Every compute node of every model is in a file."""
        return all(model.verdict.full for model in self.models)

    def meets(self, require: str | None) -> bool:
        """Whether ``--require`` holds for every model."""
        return all(model.verdict.meets(require) for model in self.models)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "format": "dlc",
            "output": str(self.output),
            "target": self.models[0].verdict.target.chip,
            "full": self.full,
            "models": [model.to_json() for model in self.models],
            "warnings": list(self.warnings),
        }
