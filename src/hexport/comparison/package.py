"""A package as the subject: what it holds that can be compiled again, and its binary as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hexport import facts
from hexport.comparison.reference import Reference, find_inputs, open_reference
from hexport.comparison.subject import Packaged, Subject, refuse_sizes
from hexport.comparison.wishes import Wishes
from hexport.errors import BadSamples
from hexport.model import Graph, Model, read
from hexport.packaging.manifest import CONTEXT_MODEL, CPU_MODEL, MODEL_DATA, SOURCE_MODEL, Bucket
from hexport.runtime.bucket_choice import choose_bucket, dims_of, list_buckets, list_shapes
from hexport.runtime.padding import pad, pad_values
from hexport.runtime.simulating import simulator_refusal
from hexport.verification.failures import NotVerifiable
from hexport.verification.inputs import Inputs, Sample, refuse_misfits
from hexport.verification.package_subject import PackageSubject, open_subject
from hexport.verification.subject import SIMULATOR

if TYPE_CHECKING:
    from hexport.packaging.manifest import Target

_NOT_WHAT_WAS_COMPILED = (
    "the package does not hold the model that was compiled; both sides compile its CPU model, the original "
    "before it was prepared and quantised, and only the rows of the packaged binary are of that binary"
)


def open_package_subject(given: str | Path, wishes: Wishes) -> Subject:
    """One bucket of a package for one of its chips."""
    if wishes.sized:
        refuse_sizes("a package has its own: choose one with --bucket")
    package = open_subject(given, SIMULATOR, wishes.target, wishes.bucket)
    assert package.target is not None  # the simulator is always one of a chip
    reference = _reference(given, package, wishes)
    wanted = reference.wanted(package.inputs)
    inputs = find_inputs(
        wishes,
        wanted,
        package.frozen,
        (package.made_from, str(wishes.reference)),
        package.takes,
        lambda: package.sizes(Graph((), wanted, {}, {})),
    )
    bucket = _bucket(package, inputs)
    path, source, notes = _to_compile(package, package.target, bucket)
    samples = tuple(_filled(sample, source, package, bucket) for sample in inputs.samples)
    refuse_misfits(f"{given}: {path}", source.graph.inputs, samples[0])
    return Subject(
        given=str(given),
        what=path,
        source=source,
        soc=facts.find_target(package.target.soc_model),
        shapes={name: array.shape for name, array in samples[0].items()},
        samples=samples,
        reference=reference.name,
        expected=reference.run(inputs, wishes.limits),
        inputs=inputs,
        bucket=bucket.name,
        contract=package.contract,
        true_dims=dims_of(package.contract, inputs.shapes),
        packaged=_packaged(package, package.target, bucket, inputs),
        notes=notes,
    )


def _reference(given: str | Path, package: PackageSubject, wishes: Wishes) -> Reference:
    own = package.own_reference
    if wishes.reference is None and own is None:
        raise NotVerifiable(
            f"there is nothing to compare the results of {given} with",
            why="it holds no model for the CPU",
            next="name the original: --reference MODEL",
        )
    if wishes.reference is None:
        assert own is not None
        return Reference(str(own), read(own), package.frozen)
    outputs = {tensor.name for tensor in package.contract.outputs}
    model = open_reference(wishes.reference, str(given), outputs)
    return Reference(str(wishes.reference), model, package.frozen)


def _bucket(package: PackageSubject, inputs: Inputs) -> Bucket:
    """The smallest that takes the inputs, as the runtime chooses."""
    offered = (package.bucket,) if package.bucket else package.package.manifest.buckets
    found = choose_bucket(offered, inputs.shapes, package.contract)
    if found is None:
        raise BadSamples(
            f"the inputs fit no bucket: {list_shapes(inputs.shapes)}",
            why=f"there is {list_buckets(offered)}",
            next="give inputs of a bucket's sizes" if package.bucket is None else "choose another --bucket",
        )
    return found


def _to_compile(
    package: PackageSubject, target: Target, bucket: Bucket
) -> tuple[str, Model, tuple[str, ...]]:
    """What was compiled, or else the original, which is at least the same model."""
    held = package.package
    sources = held.find(SOURCE_MODEL, target=target.name, bucket=bucket.name)
    notes = () if sources else (_NOT_WHAT_WAS_COMPILED,)
    found = sources or held.find(CPU_MODEL)
    if not found:
        raise NotVerifiable(
            f"{held.folder} holds nothing that could be compiled again",
            why="it was built without source models and without a CPU model",
            next="compare the model that it was made from",
        )
    (path, *_) = held.verified(found[0], *held.find(MODEL_DATA))
    return found[0].path, read(path), notes


def _filled(sample: Sample, source: Model, package: PackageSubject, bucket: Bucket) -> Sample:
    """At the bucket's sizes, with what was frozen if the model still takes it."""
    values = pad_values(package.contract)
    whole: dict[str, NDArray[Any]] = {
        name: pad(array, bucket.input_shapes[name], values.get(name, {}))
        for name, array in sample.items()
        if name in bucket.input_shapes
    }
    return _taken({**whole, **package.frozen}, source)


def _taken(arrays: Mapping[str, NDArray[Any]], source: Model) -> Sample:
    return {name: array for name, array in arrays.items() if name in source.graph.inputs}


def _packaged(package: PackageSubject, target: Target, bucket: Bucket, inputs: Inputs) -> Packaged | None:
    found = package.package.find(CONTEXT_MODEL, target=target.name, bucket=bucket.name)
    if not found:
        return None
    refusal = simulator_refusal(package.package, found[0], target, bucket)
    return Packaged(found[0].path, refusal, lambda limits: package.run(inputs, limits).outputs)
