"""The expensive steps of a build, each kept by what it was made from, for the build after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts
from hexport.building.buckets import Sizes
from hexport.building.wishes import Wishes
from hexport.compiling.options import CompileOptions
from hexport.compiling.verb import compile_models
from hexport.model import Model, read
from hexport.preparation.kept import model_digest, prepared
from hexport.quantization.verb import quantize
from hexport.records import to_plain
from hexport.storage import Store, file_digest, key_of
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.quantization.data import CalibrationData

_REPORT = "report.json"


@dataclass(frozen=True)
class Ready:
    """A model as it is compiled: prepared, and in integers where that was asked for."""

    path: Path
    report: dict[str, Any]
    decisions: Path | None = None
    """The quantiser's ``.quant.json``; None in float."""


@dataclass(frozen=True)
class CompiledFiles:
    """Context models and their binary, in a folder of the store."""

    folder: Path
    report: dict[str, Any]
    """The document of ``hexport compile --json``; its paths are file names in ``folder``."""

    @property
    def artefacts(self) -> list[dict[str, Any]]:
        return list(self.report["artefacts"])


@dataclass
class Steps:
    """One build's way to the store."""

    source: Model
    name: str
    """What the user calls the model."""
    freeze: Mapping[str, str]
    limits: Limits
    say: Callable[[str], None]
    taken: dict[str, int] = field(default_factory=dict)
    """Step -> how often the store had it."""
    made: dict[str, int] = field(default_factory=dict)

    def in_float(self, soc: facts.Soc, sizes: Sizes, proofs: Path | None, proofs_digest: str) -> Ready:
        """Prepared, and nothing else."""
        found = prepared(
            self.source,
            soc,
            sizes.shapes,
            self.freeze,
            proofs,
            proofs_digest,
            self.limits,
            self._told("prepare", sizes.name),
            self.name if self.name.startswith("zoo:") else None,
        )
        return Ready(found.path, found.report)

    def in_integers(
        self,
        soc: facts.Soc,
        sizes: Sizes,
        data: CalibrationData,
        wishes: Wishes,
        settled: Path | None = None,
    ) -> Ready:
        """Quantised; ``settled`` has the decisions that were made at another bucket's sizes."""

        def make(folder: Path) -> None:
            say = self._told("quantize", sizes.name)
            say("quantising")
            result = quantize(
                self.source.path,
                output=folder / "model.onnx",
                target=soc.soc_model,
                scheme=wishes.scheme,
                calib=data,
                min_sqnr=wishes.min_sqnr,
                metric=wishes.metric,
                max_drop=wishes.max_drop,
                override=settled or wishes.override,
                keep_float=() if settled else wishes.keep_float,
                effort="fast" if settled else wishes.effort,
                input_shapes=sizes.shapes,
                freeze=dict(self.freeze) or None,
                limits=self.limits,
                say=say,
            )
            (folder / _REPORT).write_text(json.dumps(result.to_json()), "utf-8")

        key = key_of(
            "quantize",
            model=model_digest(self.source),
            data=data.fingerprint,
            target=soc.soc_model,
            shapes=sizes.shapes,
            freeze=dict(self.freeze),
            wishes=wishes.by_content(),
            settled=file_digest(settled) if settled else "",
        )
        folder = self._kept("quantize", key, make)
        report = json.loads((folder / _REPORT).read_text("utf-8"))
        return Ready(folder / "model.onnx", report, folder / "model.quant.json")

    def compiled(
        self, models: Sequence[Path], soc: facts.Soc, options: CompileOptions, *, share: bool
    ) -> CompiledFiles:
        """Context binaries of the models for one chip."""

        def make(folder: Path) -> None:
            self.say(f"{soc.chip}: compiling")
            result = compile_models(
                models,
                [soc.soc_model],
                folder,
                options=options,
                share_weights=share,
                limits=self.limits,
            )
            (folder / _REPORT).write_text(json.dumps(_by_name(result.to_json())), "utf-8")

        key = key_of(
            "compile",
            models=[[path.name, model_digest(read(path))] for path in models],
            target=soc.soc_model,
            options=to_plain(options),
            share=share,
        )
        folder = self._kept("compile", key, make)
        return CompiledFiles(folder, json.loads((folder / _REPORT).read_text("utf-8")))

    def kept(self, step: str, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Any other result that JSON can hold."""
        folder = self._kept(step, key, lambda folder: _write(folder / _REPORT, make()))
        document: dict[str, Any] = json.loads((folder / _REPORT).read_text("utf-8"))
        return document

    def _kept(self, step: str, key: str, make: Callable[[Path], None]) -> Path:
        folder, was_there = Store().get(step, key, make)
        counts = self.taken if was_there else self.made
        counts[step] = counts.get(step, 0) + 1
        return folder

    def _told(self, _step: str, bucket: str) -> Callable[[str], None]:
        return lambda text: self.say(f"{bucket}: {text}")


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document), "utf-8")


def _by_name(document: dict[str, Any]) -> dict[str, Any]:
    """Without the folders, which are the store's own."""
    del document["out_dir"]
    for artefact in document["artefacts"]:
        artefact["binary"] = artefact["binary"] and Path(artefact["binary"]).name
        for model in artefact["models"]:
            model["path"], model["source"] = Path(model["path"]).name, Path(model["source"]).name
    return document
