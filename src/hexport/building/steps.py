"""The expensive steps of a build, each kept by what it was made from, for the build after.

What a step needs is imported when it is made: a build that finds everything in the store is over before
the libraries that change models would have been read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts
from hexport.building.buckets import Sizes
from hexport.building.digests import Digests, samples_digest
from hexport.building.inputs import Inputs
from hexport.building.wishes import Wishes
from hexport.compiling.options import CompileOptions
from hexport.model import Model, read
from hexport.model.external import data_files
from hexport.records import to_plain
from hexport.storage import Store, file_digest, key_of
from hexport.toolchain import Limits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MODEL, _DECISIONS, _REPORT = "model.onnx", "model.quant.json", "report.json"
_OURS = ("output", "data", "out_dir", "model")
"""Fields of reports that name places on the machine that built."""


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
    frozen: Mapping[str, NDArray[np.generic]]
    limits: Limits
    say: Callable[[str], None]
    aside: Path
    """For what is not kept."""
    digests: Digests = field(default_factory=Digests)
    taken: dict[str, int] = field(default_factory=dict)
    """Step -> how often the store had it."""
    made: dict[str, int] = field(default_factory=dict)

    def in_float(self, soc: facts.Soc, sizes: Sizes, inputs: Inputs, cures: Sequence[str] = ()) -> Ready:
        """Prepared, and nothing else; ``cures`` were kept in the bucket it shares its weights with."""

        def make(folder: Path) -> None:
            from hexport.building.preparing import prepare_into

            say = self._told(sizes.name)
            report = prepare_into(
                folder / _MODEL,
                self.source,
                self.name,
                soc,
                sizes,
                self.freeze,
                inputs,
                self.limits,
                say,
                cures,
            )
            _write(folder / _REPORT, report)

        key = key_of("ready", **self._common(soc, sizes), inputs=inputs.digest, cures=sorted(cures))
        folder = self.folder("ready", key, make)
        return Ready(folder / _MODEL, _read(folder))

    def in_integers(
        self, soc: facts.Soc, sizes: Sizes, inputs: Inputs, wishes: Wishes, settled: Path | None = None
    ) -> Ready:
        """Quantised; ``settled`` has the decisions that were made at another bucket's sizes."""

        def make(folder: Path) -> None:
            from hexport.quantization.verb import quantize

            say = self._told(sizes.name)
            say("quantising")
            result = quantize(
                self.source.path,
                output=folder / _MODEL,
                target=soc.soc_model,
                scheme=wishes.scheme,
                calib=inputs.data,
                min_sqnr=wishes.min_sqnr,
                metric=wishes.metric,
                max_drop=wishes.max_drop,
                override=settled or wishes.override,
                keep_float=() if settled else wishes.keep_float,
                ranges=None if settled else wishes.ranges,
                without=() if settled else wishes.without,
                effort="fast" if settled else wishes.effort,
                input_shapes=sizes.shapes,
                freeze=dict(self.freeze) or None,
                limits=self.limits,
                say=say,
            )
            _write(folder / _REPORT, result.to_json())

        key = key_of(
            "quantize",
            **self._common(soc, sizes),
            inputs=inputs.digest,
            wishes=wishes.by_content(),
            settled=file_digest(settled) if settled else "",
        )
        folder = self.folder("quantize", key, make, keep=wishes.is_keepable)
        return Ready(folder / _MODEL, _read(folder), folder / _DECISIONS)

    def adopted(self, ready: Ready, first: Ready) -> Ready:
        """``ready`` with the integers of ``first``; its report tells how many bytes are its own."""

        def make(folder: Path) -> None:
            from hexport.building.sharing import adopt

            _write(folder / _REPORT, {"alone": adopt(ready.path, first.path, folder / _MODEL)})

        of = self.digests.of_model
        key = key_of("adopt", model=of(ready.path), settled=of(first.path))
        folder = self.folder("adopt", key, make)
        return Ready(folder / _MODEL, {**ready.report, "own_bytes": _read(folder)["alone"]}, ready.decisions)

    def compiled(
        self, models: Mapping[str, Path], soc: facts.Soc, options: CompileOptions, *, share: bool
    ) -> CompiledFiles:
        """Context binaries of the models for one chip; they are called by the names in ``models``."""

        def make(folder: Path) -> None:
            from hexport.compiling.verb import compile_models

            self.say(f"{soc.chip}: compiling")
            named = _named(models, self.aside / soc.chip)
            result = compile_models(
                named, [soc.soc_model], folder, options=options, share_weights=share, limits=self.limits
            )
            _write(folder / _REPORT, _by_name(result.to_json()))

        key = key_of(
            "compile",
            models=[[name, self.digests.of_model(path)] for name, path in models.items()],
            target=soc.soc_model,
            options=to_plain(options),
            share=share,
        )
        folder = self.folder("compile", key, make)
        return CompiledFiles(folder, _read(folder))

    def document(self, step: str, make: Callable[[], dict[str, Any]], **parts: object) -> dict[str, Any]:
        """Any other result that JSON can hold, kept by ``parts``."""
        key = key_of(step, **parts)
        return _read(self.folder(step, key, lambda folder: _write(folder / _REPORT, make())))

    def folder(self, step: str, key: str, make: Callable[[Path], None], *, keep: bool = True) -> Path:
        """What ``make`` puts into a folder: of the store, or of this build alone."""
        if keep:
            folder, was_there = Store().get(step, key, make, lambda: self._wait(step))
        else:
            folder, was_there = self.aside / step / key, False
            folder.mkdir(parents=True)
            make(folder)
        if keep:
            self.digests.note_kept(folder)
        counts = self.taken if was_there else self.made
        counts[step] = counts.get(step, 0) + 1
        return folder

    def _common(self, soc: facts.Soc, sizes: Sizes) -> dict[str, object]:
        return {
            "model": self.digests.of_model(self.source),
            "target": soc.soc_model,
            "shapes": sizes.shapes,
            "frozen": samples_digest([dict(self.frozen)]),
        }

    def _wait(self, step: str) -> None:
        self.say(f"waiting for another build, which is at the same step ({step})")

    def _told(self, bucket: str) -> Callable[[str], None]:
        return lambda text: self.say(f"{bucket}: {text}")


def _named(models: Mapping[str, Path], place: Path) -> list[Path]:
    """The same models in files with their buckets' names, by which graphs and binaries are called."""
    found = []
    for name, path in models.items():
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        for data in data_files(read(path)):
            shutil.copyfile(data, folder / data.name)
        found.append(Path(shutil.copyfile(path, folder / f"{name}.onnx")))
    return found


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Without the names of folders, which are the store's own or the user's."""
    path.write_text(json.dumps({k: v for k, v in document.items() if k not in _OURS}), "utf-8")


def _read(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / _REPORT).read_text("utf-8"))
    return document


def _by_name(document: dict[str, Any]) -> dict[str, Any]:
    """With names of files in place of paths."""
    for artefact in document["artefacts"]:
        artefact["binary"] = artefact["binary"] and Path(artefact["binary"]).name
        for model in artefact["models"]:
            model["path"], model["source"] = Path(model["path"]).name, Path(model["source"]).name
    return document
