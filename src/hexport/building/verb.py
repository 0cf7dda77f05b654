"""``build``: prepare, quantise, compile, verify, package."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.building.assembling import ForChip
from hexport.building.declared import as_given
from hexport.building.making import Making
from hexport.building.order import take_order
from hexport.building.outcome import Built
from hexport.building.packing import make_contract, put_together, scheme_said
from hexport.building.padding_proof import Proof
from hexport.building.steps import Steps
from hexport.building.surprises import surprises
from hexport.building.verifying import Verifier
from hexport.building.wishes import Wishes
from hexport.compiling.options import CompileOptions
from hexport.errors import UsageError
from hexport.model import Model
from hexport.model.digests import bytes_of, files_of
from hexport.model.dims import Shape
from hexport.packaging.manifest import Number, Verification
from hexport.packaging.staging import staging_folder
from hexport.packaging.writing import package_aside
from hexport.storage import Store
from hexport.storage.temporary import sweep_temporary
from hexport.toolchain import Limits
from hexport.torch.opening import as_description

if TYPE_CHECKING:
    from torch import nn

    from hexport.quantization.judging import Metric
    from hexport.torch.description import TorchModel

__all__ = ["Built", "build"]


def build(
    model: str | Path | TorchModel | nn.Module,
    example_inputs: object = None,
    *,
    output: str | Path,
    targets: Sequence[str | int],
    scheme: str | None = None,
    calib: object = None,
    min_sqnr: float | None = None,
    metric: str | Metric | None = None,
    max_drop: float | None = None,
    override: str | Path | None = None,
    keep_float: Sequence[str] = (),
    ranges: str | None = None,
    without: Sequence[str] = (),
    effort: str = "normal",
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    freeze: Mapping[str, str] | None = None,
    dynamic_shapes: Any = None,
    buckets: Mapping[str, Sequence[int]] | str | None = None,
    pad: Mapping[str, Number] | None = None,
    preprocess: str | Path | None = None,
    samples: int | None = None,
    with_cpu_model: bool = True,
    with_source_models: bool = True,
    share_weights: bool = True,
    options: CompileOptions | None = None,
    limits: Limits | None = None,
    command: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Built:
    """Write the package ``output``: it appears whole, or what was there before stays.

    ``model``: a file, ``"zoo:NAME"``, ``"MODULE:FACTORY"``; or a PyTorch module with ``example_inputs``, and
    ``dynamic_shapes`` as for torch.export, in which a dim may be a name: ``{"ids": {1: "seq"}}``.
    ``buckets``: dim -> sizes, or ``"auto"``; ``pad``: input -> what it is filled up with, 0 by default.
    ``with_source_models``: what a simulator needs where buckets share a binary, which it cannot load.
    ``command``: the words that called for it, for the manifest.
    """
    began = time.perf_counter()
    model = as_description(model, example_inputs, dynamic_shapes)
    wishes = Wishes(
        scheme or "",
        min_sqnr,
        metric,
        max_drop,
        override,
        tuple(keep_float),
        ranges,
        tuple(without),
        effort,
    )
    order = take_order(
        model,
        Path(output),
        targets,
        wishes,
        calib,
        dims or {},
        input_shapes or {},
        freeze,
        buckets,
        pad or {},
        samples,
    )
    limits, stamps = limits or Limits(), _stamps(order.source)
    sweep_temporary()
    # The folder for what is not kept is hexport's own, too: the next build removes what a killed one left.
    with package_aside(order.output) as folder, staging_folder() as aside, Store().using():
        steps = Steps(order.source, order.name, order.freeze, order.frozen, limits, say, aside)
        making = Making(
            order, steps, options or CompileOptions(), aside, limits, share_weights, preprocess, samples
        )
        with ExitStack() as stack:
            whole = stack.enter_context(making.open())
            opened = {making.largest.name: whole}
            for sizes in order.buckets[:-1]:
                opened[sizes.name] = stack.enter_context(making.inputs_at(sizes, whole))
            proofs = making.prove_padding(whole)
            contract = make_contract(order, proofs)
            chips = making.make_all(whole, opened)
            verifier = Verifier(order, steps, contract, limits)
            found = [one for chip in chips for one in verifier.verify(chip, opened)]
        _refuse_changed(order.source, stamps)
        contract, belied = as_given(contract, verifier.output_shapes)
        exact = [proof.sentence() for proof in proofs if not proof.padded]
        left_out = [] if with_source_models else _without_sources(chips)
        notes = [
            *order.notes,
            *belied,
            *exact,
            *making.notes,
            *verifier.remarks,
            *surprises(found, making.reports),
            *_unreal(whole.real),
            *left_out,
            *_cpu_nodes(chips),
        ]
        manifest = put_together(
            order,
            contract,
            chips,
            found,
            verifier.output_shapes,
            scheme_said(chips, making.reports),
            notes,
            _report(making, chips, proofs),
            command,
            folder,
            steps,
            with_cpu_model=with_cpu_model,
            with_source_models=with_source_models,
        )
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    shortfalls = (*making.shortfalls, *_shortfalls(found))
    return Built(
        order.output,
        manifest,
        not shortfalls,
        shortfalls,
        proofs,
        bytes_of(order.source),
        size,
        time.perf_counter() - began,
        steps.made,
        steps.taken,
    )


def _stamps(source: Model) -> list[tuple[int, int]]:
    return [(found.st_size, found.st_mtime_ns) for found in (path.stat() for path in files_of(source))]


def _refuse_changed(source: Model, stamps: Sequence[tuple[int, int]]) -> None:
    """A package of two models in one would pass every check of its own."""
    if _stamps(source) != stamps:
        raise UsageError(
            f"{source.path} changed while it was built",
            why="some steps were made from the old file, others from the new one",
            next="leave it alone and build again; hexport cache clear forgets those steps",
        )


def _unreal(real: bool) -> list[str]:
    if real:
        return []
    return ["it was verified on random inputs, which show little; give real ones with --calib"]


def _without_sources(chips: Sequence[ForChip]) -> list[str]:
    if not any(chip.shared for chip in chips):
        return []
    return [
        "the models that its buckets were compiled from were left out: it runs on devices and on the CPU only"
    ]


def _cpu_nodes(chips: Sequence[ForChip]) -> list[str]:
    """What does not run on the NPU, with the backend's reason."""
    notes = []
    for chip in chips:
        for made in chip.compiled.artefacts:
            for model in made["models"]:
                nodes = model["cpu_nodes"]
                if nodes:
                    first = nodes[0]
                    notes.append(
                        f"{chip.soc.chip}, {Path(model['source']).stem}: {len(nodes)} nodes run on the CPU, "
                        f"first {first['op']} `{first['name']}`: {first['reason']}"
                    )
    return notes


def _shortfalls(found: Sequence[Verification]) -> list[str]:
    said = []
    for one in found:
        if not one.passed:
            worst = min((o.sqnr_db for o in one.outputs), key=lambda db: -1e9 if isinstance(db, str) else db)
            asked = "of no use" if one.min_sqnr_db is None else f"{one.min_sqnr_db:g} dB were asked for"
            figure = worst if isinstance(worst, str) else f"{worst:.1f} dB"
            said.append(f"{one.target}, {one.bucket}: {figure} on the simulator, {asked}")
    return said


def _report(making: Making, chips: Sequence[ForChip], proofs: Sequence[Proof]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "steps": making.reports,
        "compiled": {chip.soc.chip: chip.compiled.report for chip in chips},
        "padding": [proof.to_json() for proof in proofs],
    }
