"""A package: its files for one chip and one bucket, run by its own contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hexport import facts
from hexport.errors import BadSamples, UsageError
from hexport.model import Graph, TensorType, read
from hexport.model.dims import Shape
from hexport.packaging import Package, open_package
from hexport.packaging.manifest import (
    CONTEXT_MODEL,
    CPU_MODEL,
    SOURCE_MODEL,
    Artefact,
    Bucket,
    Contract,
    Target,
)
from hexport.runtime.bucket_choice import (
    bucket_volume,
    choose_bucket,
    dims_of,
    list_buckets,
    list_shapes,
)
from hexport.runtime.padding import cut, pad, pad_values
from hexport.runtime.requests import frozen_value
from hexport.runtime.simulating import simulator_refusal
from hexport.toolchain import Limits
from hexport.verification.failures import NotVerifiable
from hexport.verification.inputs import Inputs, refuse_misfits
from hexport.verification.subject import CPU, Ran, describe, is_quantised, refuse_target, run_model


@dataclass(frozen=True)
class PackageSubject:
    """An opened package, every file of which has the right SHA-256."""

    package: Package
    target: Target | None
    """None: on the CPU."""
    bucket: Bucket | None
    """None: the smallest that the inputs fit into."""

    @property
    def contract(self) -> Contract:
        return self.package.manifest.contract

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        return {tensor.name: TensorType(tensor.dtype, tensor.dims) for tensor in self.contract.inputs}

    @property
    def frozen(self) -> Mapping[str, NDArray[Any]]:
        return {one.name: frozen_value(one) for one in self.contract.frozen}

    @property
    def made_from(self) -> str:
        return self.package.manifest.source.name

    @property
    def own_reference(self) -> Path | None:
        found = self.package.find(CPU_MODEL) if self.target is not None else ()
        return self.package.path(found[0]) if found else None

    @property
    def asked_db(self) -> float | None:
        """The most that any verification of the build asked for."""
        asked = [v.min_sqnr_db for v in self.package.manifest.verification if v.min_sqnr_db is not None]
        return max(asked, default=None)

    def takes(self, shapes: Mapping[str, Shape]) -> bool:
        return self.target is None or choose_bucket(self._offered, shapes, self.contract) is not None

    def sizes(self, wanted: Graph) -> dict[str, Shape]:
        bucket = min(self._offered, key=bucket_volume)
        if other := [name for name in wanted.inputs if name not in bucket.input_shapes]:
            raise BadSamples(
                f"the reference takes input {other[0]!r}, which the package does not have",
                next="give --inputs FILE.npz; is this the model that the package was made from?",
            )
        return dict(bucket.input_shapes)

    def run(self, inputs: Inputs, limits: Limits) -> Ran:
        if self.target is None:
            return self._run_on_cpu(inputs, limits)
        bucket, dims = self._choose(inputs.shapes), dims_of(self.contract, inputs.shapes)
        artefact, notes = self._to_run(self.target, bucket)
        (path,) = self.package.verified(artefact)
        takes, values = read(path).graph.inputs, pad_values(self.contract)
        filled = [
            {n: pad(a, bucket.input_shapes[n], values.get(n, {})) for n, a in sample.items() if n in takes}
            for sample in inputs.samples
        ]
        refuse_misfits(f"{self.package.folder}: {artefact.path}", takes, filled[0])
        soc = facts.find_target(self.target.soc_model)
        results = run_model(path, filled, soc, limits, options=self.target.load_options)
        npu, cpu, more = describe(results, artefact.path, True)
        smaller = {name: size for name, size in dims.items() if size != bucket.dims.get(name, size)}
        return Ran(
            tuple(cut(outputs, self.contract, dims) for outputs in results.outputs),
            artefact.path,
            npu,
            cpu,
            self.target.name,
            bucket.name,
            tuple(smaller.items()),
            (*notes, *more, *self._unseen(bucket)),
        )

    def _run_on_cpu(self, inputs: Inputs, limits: Limits) -> Ran:
        found = self.package.find(CPU_MODEL)
        if not found:
            raise NotVerifiable(f"{self.package.folder} has no model for the CPU", next="--backend simulator")
        (path,) = self.package.verified(found[0])
        source = read(path)
        takes = {*source.graph.inputs, *source.defaults}
        samples = [
            {name: array for name, array in {**sample, **self.frozen}.items() if name in takes}
            for sample in inputs.samples
        ]
        refuse_misfits(f"{self.package.folder}: {found[0].path}", source.graph.inputs, samples[0])
        results = run_model(path, samples, None, limits, optimize=not is_quantised(source))
        npu, cpu, _ = describe(results, found[0].path, False)
        return Ran(results.outputs, found[0].path, npu, cpu)

    @property
    def _offered(self) -> tuple[Bucket, ...]:
        if not self.package.manifest.buckets:
            raise NotVerifiable(f"{self.package.folder} has no bucket", why="nothing in it is compiled")
        return (self.bucket,) if self.bucket else self.package.manifest.buckets

    def _choose(self, shapes: Mapping[str, Shape]) -> Bucket:
        """As the runtime does."""
        found = choose_bucket(self._offered, shapes, self.contract)
        if found is not None:
            return found
        raise BadSamples(
            f"the inputs fit no bucket: {list_shapes(shapes)}",
            why=f"there is {list_buckets(self._offered)}; "
            "smaller sizes are taken along axes that the contract fills up",
            next="give inputs of a bucket's sizes" if self.bucket is None else "choose another --bucket",
        )

    def _to_run(self, target: Target, bucket: Bucket) -> tuple[Artefact, list[str]]:
        """The context model; or what it was compiled from, where no simulator can load it."""
        found = self.package.find(CONTEXT_MODEL, target=target.name, bucket=bucket.name)
        if not found:
            raise NotVerifiable(
                f"{self.package.folder} has nothing compiled for {target.name} and {bucket.name}"
            )
        reason = simulator_refusal(self.package, found[0], target, bucket)
        if not reason:
            return found[0], []
        sources = self.package.find(SOURCE_MODEL, target=target.name, bucket=bucket.name)
        if not sources:
            raise NotVerifiable(
                f"{found[0].path} cannot be run on the simulator",
                why=f"{reason}, and the package does not hold the model that it was compiled from",
                next="verify it on the device, or build with a binary for each chip and bucket",
            )
        note = (
            f"{found[0].path} was not run: {reason}; instead {sources[0].path}, "
            "which it was compiled from, was compiled and run"
        )
        return sources[0], [note]

    def _unseen(self, bucket: Bucket) -> list[str]:
        """What of the package was not looked at."""
        manifest = self.package.manifest
        others = [one.name for one in manifest.buckets if one != bucket]
        chips = [one.name for one in manifest.targets if one != self.target]
        said = [f"other buckets were not run: {', '.join(others)} (--bucket)"] if others else []
        return said + ([f"other chips were not simulated: {', '.join(chips)} (--target)"] if chips else [])


def open_subject(
    folder: str | Path, backend: str, target: str | int | None, bucket: str | None
) -> PackageSubject:
    """The package, after every file was compared with its manifest."""
    package = open_package(folder)
    manifest = package.manifest
    chosen = next((one for one in manifest.buckets if one.name == bucket), None)
    if bucket is not None and chosen is None:
        known = ", ".join(one.name for one in manifest.buckets) or "none"
        raise UsageError(f"{folder} has no bucket {bucket!r}", why=f"it has: {known}")
    if backend == CPU:
        refuse_target(target)
        return PackageSubject(package, None, chosen)
    known = ", ".join(one.name for one in manifest.targets) or "none"
    if target is None:
        if not manifest.targets:
            raise NotVerifiable(f"{folder} is for no chip", next="--backend cpu")
        return PackageSubject(package, manifest.targets[0], chosen)
    soc = facts.find_target(target)
    for one in manifest.targets:
        if one.soc_model == soc.soc_model:
            return PackageSubject(package, one, chosen)
    raise UsageError(f"{folder} has nothing for {soc.chip}", why=f"it is for: {known}")
