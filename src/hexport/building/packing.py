"""From what was made to the package's files and its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hexport.building.assembling import ForChip, put_compiled, put_models, put_report
from hexport.building.buckets import varying
from hexport.building.order import Order
from hexport.building.padding_proof import Proof
from hexport.building.signature import tensors
from hexport.building.steps import Steps
from hexport.model.digests import bytes_of
from hexport.packaging import write_manifest
from hexport.packaging.manifest import (
    Bucket,
    Contract,
    Manifest,
    Padding,
    Source,
    Target,
    Toolchain,
    Verification,
)
from hexport.storage.installed import installed_version
from hexport.version import __version__


def make_contract(order: Order, proofs: Sequence[Proof]) -> Contract:
    """What the package takes and gives; only what was proved is filled up."""
    inputs, outputs, frozen = tensors(order.source, order.graph, order.frozen)
    proved = [proof for proof in proofs if proof.padded]
    padding = tuple(
        Padding(name, axis, order.pad.get(name, 0))
        for dim in varying((proof.dim for proof in proved), order.sums)
        for name, axis in order.places[dim]
        if name not in order.frozen
    )
    return Contract(inputs, outputs, frozen, padding, tuple(crop for proof in proved for crop in proof.crops))


def put_together(
    order: Order,
    contract: Contract,
    chips: Sequence[ForChip],
    verifications: Sequence[Verification],
    output_shapes: Mapping[str, Mapping[str, tuple[int, ...]]],
    scheme: str,
    notes: Sequence[str],
    report: Mapping[str, Any],
    command: Sequence[str],
    folder: Path,
    steps: Steps,
    *,
    with_cpu_model: bool,
    with_source_models: bool,
) -> Manifest:
    """Write every file; the manifest last."""
    artefacts = [found for chip in chips for found in put_compiled(chip, order.buckets, folder, steps)]
    shared = [chip for chip in chips if chip.shared and with_source_models]
    artefacts += put_models(order.source if with_cpu_model else None, shared, folder, steps)
    artefacts.append(put_report(report, folder))
    free = [tensor.name for tensor in contract.inputs]
    manifest = Manifest(
        Source(order.name, bytes_of(order.source), steps.digests.of_model(order.source)),
        scheme,
        contract,
        tuple(Target(c.soc.chip, c.soc.soc_model, c.soc.htp_arch) for c in chips),
        tuple(
            Bucket(s.name, s.dims, {n: s.shapes[n] for n in free}, dict(output_shapes[s.name]))
            for s in order.buckets
        ),
        tuple(artefacts),
        tuple(verifications),
        _toolchain(chips),
        tuple(command),
        tuple(dict.fromkeys(notes)),
    )
    write_manifest(folder, manifest)
    return manifest


def scheme_said(chips: Sequence[ForChip], reports: Mapping[str, Mapping[str, Any]]) -> str:
    """The scheme that was chosen; of a model that was not quantised here, what the compiler saw."""
    chosen = {str(report["chosen"]) for report in reports.values() if "chosen" in report}
    seen = {str(m["scheme"]) for chip in chips for made in chip.compiled.artefacts for m in made["models"]}
    return ", ".join(sorted(chosen or seen))


def _toolchain(chips: Sequence[ForChip]) -> Toolchain:
    sdk = chips[0].compiled.artefacts[0]["contexts"][0]["sdk"]
    runtime, provider = (installed_version(name) for name in ("onnxruntime", "onnxruntime-qnn"))
    return Toolchain(__version__, runtime, provider, str(sdk))
