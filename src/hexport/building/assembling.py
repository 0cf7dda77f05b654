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
from hexport.model.digests import digest_of
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


def put_compiled(chip: ForChip, buckets: Sequence[Sizes], folder: Path) -> list[Artefact]:
    """Context models and binaries into a folder with the chip's name."""
    place = folder / chip.soc.chip
    place.mkdir()
    targets = [chip.soc.chip]
    found = []
    for made in chip.compiled.artefacts:
        names = []
        for model in made["models"]:
            bucket = Path(model["source"]).stem
            names.append(bucket)
            shutil.copyfile(chip.compiled.folder / model["path"], place / model["path"])
            path = f"{chip.soc.chip}/{model['path']}"
            found.append(
                artefact(
                    folder, path, CONTEXT_MODEL, targets=targets, buckets=[bucket], graphs=model["graphs"]
                )
            )
        if made["binary"]:
            shutil.copyfile(chip.compiled.folder / made["binary"], place / made["binary"])
            graphs = [graph["name"] for graph in made["contexts"][0]["graphs"]]
            every = set(names) == {sizes.name for sizes in buckets}
            found.append(
                artefact(
                    folder,
                    f"{chip.soc.chip}/{made['binary']}",
                    CONTEXT_BINARY,
                    targets=targets,
                    buckets=[] if every and len(buckets) > 1 else names,
                    graphs=graphs,
                )
            )
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
    made, place = _side_by_side(models, steps), folder / MODELS
    place.mkdir()
    files = [name for name in (*models, FILE) if (made / name).exists()]
    for name in files:
        shutil.copyfile(made / name, place / name)
    found = [artefact(folder, f"{MODELS}/{_CPU}", CPU_MODEL)] if source is not None else []
    found += [
        artefact(folder, f"{MODELS}/{name}", SOURCE_MODEL, targets=targets, buckets=buckets)
        for name, (targets, buckets) in of.items()
    ]
    if FILE in files:
        found.append(artefact(folder, f"{MODELS}/{FILE}", MODEL_DATA))
    return found


def _side_by_side(models: Mapping[str, Path], steps: Steps) -> Path:
    """A folder with all of them; one that is whole in one file stays as it is, byte for byte."""

    def make(folder: Path) -> None:
        if len(models) == 1 and not data_files(read(next(iter(models.values())))):
            ((name, path),) = models.items()
            shutil.copyfile(path, folder / name)
            return
        from hexport.building.weights_file import write_models

        write_models(models, folder)

    key = key_of("models", models={name: digest_of(path) for name, path in models.items()})
    return steps.folder("models", key, make)


def put_report(document: Mapping[str, Any], folder: Path) -> Artefact:
    """``report.json``."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (folder / "report.json").write_text(text, "utf-8")
    return artefact(folder, "report.json", REPORT)
