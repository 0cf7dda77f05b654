"""What a snippet is about: one context model of a package, called once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

from hexport.packaging import Manifest, Package
from hexport.packaging.manifest import CONTEXT_MODEL, CPU_MODEL, Bucket, Crop, Target
from hexport.snippets.failures import NoSnippet

T = TypeVar("T")


@dataclass(frozen=True)
class Value:
    """An input or output at this bucket's sizes."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def sizes(self) -> str:
        return " × ".join(map(str, self.shape)) or "a single number"


@dataclass(frozen=True)
class Call:
    """A call of one context model."""

    package: str
    model: str
    """Its path in the package."""
    target: Target
    bucket: Bucket
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sdk: str
    """The QNN SDK that compiled it."""
    title: str
    notes: tuple[str, ...]

    @property
    def options(self) -> dict[str, str]:
        """Provider options to load it with."""
        return {"backend_type": self.target.backend, **self.target.load_options}


def call_of(package: Package, shown_as: str, target: str | None, bucket: str | None) -> Call:
    """The call for this target and bucket, or for the first ones."""
    manifest = package.manifest
    chip = _choose("target", target, {t.name: t for t in manifest.targets})
    sizes = _choose("bucket", bucket, {b.name: b for b in manifest.buckets})
    found = package.find(CONTEXT_MODEL, target=chip.name, bucket=sizes.name)
    if not found:
        raise NoSnippet(
            f"the package has no model for {chip.name} at {sizes.name}", why="no file of it serves both"
        )
    contract = manifest.contract
    return Call(
        package=shown_as,
        model=found[0].path,
        target=chip,
        bucket=sizes,
        inputs=tuple(
            Value(t.name, t.dtype, sizes.input_shapes[t.name])
            for t in contract.inputs
            if t.name in sizes.input_shapes
        ),
        outputs=tuple(
            Value(t.name, t.dtype, sizes.output_shapes[t.name])
            for t in contract.outputs
            if t.name in sizes.output_shapes
        ),
        sdk=manifest.toolchain.qnn_sdk,
        title=f"{manifest.source.name} on {chip.name}, {manifest.scheme}, {sizes.name}".replace("\n", " "),
        notes=tuple(_notes(package, sizes)),
    )


def _choose(what: str, name: str | None, known: dict[str, T]) -> T:
    if not known:
        raise NoSnippet(f"the package has no {what}", why="it holds nothing that was compiled")
    if name is None:
        return next(iter(known.values()))
    if name not in known:
        raise NoSnippet(f"the package has no {what} {name!r}", why=f"it has: {', '.join(known)}")
    return known[name]


def _notes(package: Package, bucket: Bucket) -> list[str]:
    """What the caller of a fixed size must do, and what else there is."""
    manifest: Manifest = package.manifest
    notes = [
        f"Fill {padding.input!r} up along axis {padding.axis} with {padding.value} where it is shorter."
        for padding in manifest.contract.padding
    ]
    notes += [
        f"Of {crop.output!r} only the first {_length(crop)} along axis {crop.axis} are real."
        for crop in manifest.contract.crops
    ]
    others = [other.name for other in manifest.buckets if other.name != bucket.name]
    if others:
        notes.append(f"Other sizes have files of their own: {', '.join(others)}.")
    notes += [f"Without an NPU: {found.path}, on the CPU." for found in package.find(CPU_MODEL)]
    return notes


def _length(crop: Crop) -> str:
    text = f"{crop.dim}" if crop.multiply == 1 else f"{crop.dim} * {crop.multiply}"
    text += f" + {crop.add}" if crop.add > 0 else f" - {-crop.add}" if crop.add else ""
    return text if crop.divide == 1 else f"({text}) // {crop.divide}"
