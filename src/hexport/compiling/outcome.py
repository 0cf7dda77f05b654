"""What ``compile`` made: files, what the binaries say of themselves, and what stays on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.backend.context_binary import ContextBinary
from hexport.facts import Soc
from hexport.observe.verdict import Verdict
from hexport.records import to_plain


@dataclass(frozen=True)
class CompiledModel:
    """An EPContext model: what ONNX Runtime loads in the place of ``source``."""

    source: str
    path: Path
    size: int
    graphs: tuple[str, ...]
    """The graphs of the binary that it calls."""
    transposes: int
    """Of the NPU's operators, those that only change the layout."""
    seconds: float
    verdict: Verdict
    """Where each node went, and why those on the CPU did."""

    def to_json(self) -> dict[str, object]:
        verdict = self.verdict.to_json()
        keys = ("scheme", "input_shapes", "nodes", "macs", "partitions", "cpu_nodes", "io_quantization")
        return {
            "source": self.source,
            "path": str(self.path),
            "size": self.size,
            "graphs": list(self.graphs),
            "transposes": self.transposes,
            "seconds": self.seconds,
            **{key: verdict[key] for key in (*keys, "precisions", "ddr", "full")},
        }


@dataclass(frozen=True)
class Artefact:
    """One binary and the models that call it."""

    targets: tuple[Soc, ...]
    """One; or several, for a multi-SoC binary."""
    models: tuple[CompiledModel, ...]
    """One; or several, that share their weights."""
    binary: Path | None
    """None when it is inside the model."""
    size: int
    """Of the binary, wherever it is."""
    contexts: tuple[ContextBinary, ...]
    """What it says of itself, one a target."""

    @property
    def seconds(self) -> float:
        return sum(model.seconds for model in self.models)

    @property
    def files(self) -> tuple[Path, ...]:
        return (*((self.binary,) if self.binary else ()), *(model.path for model in self.models))

    def to_json(self) -> dict[str, object]:
        chips = [{"name": t.chip, "soc_model": t.soc_model, "htp_arch": t.htp_arch} for t in self.targets]
        contexts = [{"sdk": context.sdk, **to_plain(context)} for context in self.contexts]
        return {
            "targets": chips,
            "models": [model.to_json() for model in self.models],
            "binary": str(self.binary) if self.binary else None,
            "size": self.size,
            "seconds": self.seconds,
            "contexts": contexts,
        }


@dataclass(frozen=True)
class Compiled:
    """The result of ``compile``."""

    out_dir: Path
    artefacts: tuple[Artefact, ...]
    warnings: tuple[str, ...]

    @property
    def models(self) -> tuple[CompiledModel, ...]:
        return tuple(model for artefact in self.artefacts for model in artefact.models)

    @property
    def full(self) -> bool:
        """Every compute node of every model is on the NPU."""
        return all(model.verdict.full for model in self.models)

    def meets(self, require: str | None) -> bool:
        """Whether ``--require`` holds for every model."""
        return all(model.verdict.meets(require) for model in self.models)

    def for_target(self, name: str | int) -> tuple[Artefact, ...]:
        """The artefacts that run on this chip."""
        chip = facts.find_target(name)
        return tuple(artefact for artefact in self.artefacts if chip in artefact.targets)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        return {
            "schema_version": 1,
            "out_dir": str(self.out_dir),
            "full": self.full,
            "artefacts": [artefact.to_json() for artefact in self.artefacts],
            "warnings": list(self.warnings),
        }
