"""The package's files: what was compiled, the models for other processors, the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport import facts
from hexport.building.buckets import Sizes
from hexport.building.steps import CompiledFiles, Steps
from hexport.model import Model, read
from hexport.model.external import data_files
from hexport.packaging import artefact
from hexport.packaging.manifest import (
    CONTEXT_BINARY,
    CONTEXT_MODEL,
    CPU_MODEL,
    MODEL_DATA,
    REPORT,
    SOURCE_MODEL,
    Artefact,
)
from hexport.storage import key_of

MODELS = "models"
FILE = "weights.data"
"""The weights of all models that are there."""
_CPU = "cpu.onnx"


@dataclass(frozen=True)
class ForChip:
    """What was made for one chip."""

    soc: facts.Soc
    compiled: CompiledFiles
    ready: Mapping[str, Path]
    """Bucket -> the model that was compiled."""
    shared: bool
    """Whether the buckets have one binary."""

    def model_to_run(self, bucket: str) -> Path:
        """What a simulator can load: the context model, unless its binary is shared."""
        if self.shared:
            return self.ready[bucket]
        models = [model for made in self.compiled.artefacts for model in made["models"]]
        path: str = next(m["path"] for m in models if Path(m["source"]).stem == bucket)
        return self.compiled.folder / path


def put_compiled(chip: ForChip, buckets: Sequence[Sizes], folder: Path, steps: Steps) -> list[Artefact]:
    """Context models and binaries into a folder with the chip's name."""
    name = chip.soc.chip
    (folder / name).mkdir()
    found = []

    def put(file: str, role: str, names: Sequence[str], graphs: Sequence[str]) -> None:
        digest = _copy(chip.compiled.folder / file, folder / name / file, steps)
        path = f"{name}/{file}"
        found.append(
            artefact(folder, path, role, targets=[name], buckets=names, graphs=graphs, sha256=digest)
        )

    for made in chip.compiled.artefacts:
        names = [Path(model["source"]).stem for model in made["models"]]
        for bucket, model in zip(names, made["models"], strict=True):
            put(model["path"], CONTEXT_MODEL, [bucket], model["graphs"])
        if made["binary"]:
            graphs = [graph["name"] for graph in made["contexts"][0]["graphs"]]
            every = len(buckets) > 1 and set(names) == {sizes.name for sizes in buckets}
            put(made["binary"], CONTEXT_BINARY, [] if every else names, graphs)
    return found


def put_models(source: Model | None, shared: Sequence[ForChip], folder: Path, steps: Steps) -> list[Artefact]:
    """The original for the CPU, and what was compiled where the binaries cannot be loaded by a simulator."""
    models = {_CPU: source.path} if source is not None else {}
    of: dict[str, tuple[list[str], list[str]]] = {}
    for chip in shared:
        for bucket, path in chip.ready.items():
            name = next((n for n, p in models.items() if p == path), f"{bucket}.{chip.soc.chip}.onnx")
            models[name] = path
            of.setdefault(name, ([], [bucket]))[0].append(chip.soc.chip)
    if not models:
        return []
    place = folder / MODELS
    place.mkdir()
    files = _side_by_side(models, steps)
    digests = {name: _copy(path, place / name, steps) for name, path in files.items()}
    found = []
    for name, digest in digests.items():
        role = CPU_MODEL if name == _CPU else MODEL_DATA if name == FILE else SOURCE_MODEL
        targets, buckets = of.get(name, ((), ()))
        where = f"{MODELS}/{name}"
        found.append(artefact(folder, where, role, targets=targets, buckets=buckets, sha256=digest))
    return found


def _copy(path: Path, to: Path, steps: Steps) -> str:
    """Gives what the copy's SHA-256 must be: a copy that went wrong is found out when it is opened."""
    shutil.copyfile(path, to)
    return steps.digests.of_file(path)


def _side_by_side(models: Mapping[str, Path], steps: Steps) -> dict[str, Path]:
    """All of them, by name, and the file of their weights; one that is whole in one file stays as it is."""
    if len(models) == 1 and not data_files(read(next(iter(models.values())))):
        return dict(models)

    def make(folder: Path) -> None:
        from hexport.building.weights_file import write_models

        write_models(models, folder)

    of = steps.digests.of_model
    key = key_of("models", models={name: of(path) for name, path in models.items()})
    made = steps.folder("models", key, make)
    return {name: made / name for name in (*models, FILE) if (made / name).exists()}


def put_report(document: Mapping[str, Any], folder: Path) -> Artefact:
    """``report.json``."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (folder / "report.json").write_text(text, "utf-8")
    return artefact(folder, "report.json", REPORT)
