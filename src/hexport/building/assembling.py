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
from hexport.building.steps import CompiledFiles
from hexport.building.weights_file import FILE, write_models
from hexport.model import Model
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

MODELS = "models"


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


def put_models(
    source: Model | None, chips: Sequence[ForChip], folder: Path, *, sources_too: bool
) -> list[Artefact]:
    """The original for the CPU, and what was compiled where the binaries cannot be loaded by a simulator."""
    place = folder / MODELS
    if source is None and not sources_too:
        return []
    place.mkdir()
    if not sources_too:
        assert source is not None
        return _copy_original(source, folder)
    models = {"cpu.onnx": source.path} if source is not None else {}
    of: dict[str, tuple[list[str], list[str]]] = {}
    for chip in chips:
        for bucket, path in chip.ready.items():
            name = next((n for n, p in models.items() if p == path), f"{bucket}.{chip.soc.chip}.onnx")
            models[name] = path
            of.setdefault(name, ([], [bucket]))[0].append(chip.soc.chip)
    write_models(models, place)
    found = [artefact(folder, f"{MODELS}/cpu.onnx", CPU_MODEL)] if source is not None else []
    found += [
        artefact(folder, f"{MODELS}/{name}", SOURCE_MODEL, targets=targets, buckets=buckets)
        for name, (targets, buckets) in of.items()
    ]
    return [*found, artefact(folder, f"{MODELS}/{FILE}", MODEL_DATA)]


def _copy_original(source: Model, folder: Path) -> list[Artefact]:
    shutil.copyfile(source.path, folder / MODELS / "cpu.onnx")
    found = [artefact(folder, f"{MODELS}/cpu.onnx", CPU_MODEL)]
    for data in data_files(source):
        relative = data.relative_to(source.path.parent).as_posix()
        (folder / MODELS / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data, folder / MODELS / relative)
        found.append(artefact(folder, f"{MODELS}/{relative}", MODEL_DATA))
    return found


def put_report(document: Mapping[str, Any], folder: Path) -> Artefact:
    """``report.json``."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (folder / "report.json").write_text(text, "utf-8")
    return artefact(folder, "report.json", REPORT)
