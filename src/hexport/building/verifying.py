"""Each bucket and chip on the simulator, against the original model on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts
from hexport.building.assembling import ForChip
from hexport.building.buckets import Sizes
from hexport.building.inputs import Inputs
from hexport.building.order import Order
from hexport.building.shortening import shortened
from hexport.building.steps import Steps
from hexport.observe.decibels import USELESS_DB
from hexport.packaging.manifest import Contract, OutputFigure, Verification
from hexport.records import from_plain, to_plain
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample

SIMULATOR = "simulator"


@dataclass(frozen=True)
class Verifier:
    """Runs what was built beside what it was built from."""

    order: Order
    steps: Steps
    contract: Contract
    limits: Limits
    output_shapes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """Bucket -> output -> its shape at the bucket's own sizes; known when it was verified."""
    remarks: list[str] = field(default_factory=list)
    """What a reader of the figures should know."""

    def verify(self, chip: ForChip, opened: Mapping[str, Inputs]) -> Iterator[Verification]:
        """Every bucket at its own sizes, and filled up from smaller ones where the contract allows it."""
        for sizes in self.order.buckets:
            model = chip.model_to_run(sizes.name)
            yield self._one(chip.soc, model, sizes, opened[sizes.name], {})
            if dims := self._smaller(sizes):
                yield self._one(chip.soc, model, sizes, opened[sizes.name], dims)

    def _smaller(self, sizes: Sizes) -> dict[str, int]:
        """Sizes below the bucket's, of the dims that are filled up."""
        padded = {(padding.input, padding.axis) for padding in self.contract.padding}
        # In the order's own order: a set's would change from run to run, and the manifest with it.
        filled = [dim for dim in self.order.varied if padded.intersection(self.order.places[dim])]
        return {dim: size - max(1, size // 4) for dim in filled if (size := sizes.dims[dim]) > 1}

    def _one(
        self, soc: facts.Soc, model: Path, sizes: Sizes, inputs: Inputs, dims: dict[str, int]
    ) -> Verification:
        digests = self.steps.digests
        measured = self.steps.document(
            "verify",
            lambda: self._measure(soc, model, sizes, self._samples(inputs, sizes, dims), dims, inputs.real),
            source=digests.of_model(self.order.source),
            model=digests.of_model(model),
            binaries=sorted(digests.of_file(path) for path in model.parent.glob("*.bin")),
            soc=soc.soc_model,
            inputs=inputs.digest,
            shapes=sizes.shapes,
            dims=dims,
            contract=to_plain(self.contract),
        )
        if not dims:
            self.output_shapes[sizes.name] = {name: tuple(s) for name, s in measured["shapes"].items()}
        self.remarks.extend(f"{soc.chip}, {sizes.name}: {remark}" for remark in measured["remarks"])
        asked, figures = self.order.wishes.min_sqnr, measured["outputs"]
        enough = USELESS_DB if asked is None else asked
        return Verification(
            soc.chip,
            sizes.name,
            SIMULATOR,
            measured["samples"],
            asked,
            all(_reaches(figure["sqnr_db"], enough) for figure in figures),
            tuple(from_plain(OutputFigure, figure) for figure in figures),
            dims,
        )

    def _samples(self, inputs: Inputs, sizes: Sizes, dims: Mapping[str, int]) -> list[Sample]:
        if not dims:
            return list(inputs.verifying)
        return [shortened(inputs.verifying[0], self.order.places, self.order.complete(dims, sizes))]

    def _measure(
        self,
        soc: facts.Soc,
        model: Path,
        sizes: Sizes,
        samples: list[Sample],
        dims: dict[str, int],
        real: bool,
    ) -> dict[str, Any]:
        from hexport.backend.running import run_on_cpu
        from hexport.runtime.padding import pad, pad_values
        from hexport.verification.measuring import compare_on
        from hexport.verification.subject import is_quantised

        self.steps.say(f"{soc.chip}: verifying {sizes.name} on the simulator")
        source = self.order.source
        reference = run_on_cpu(
            source.path, samples, optimize=not is_quantised(source), limits=self.limits
        ).outputs
        values = pad_values(self.contract)
        filled = [
            {
                name: pad(array, sizes.shapes[name], values.get(name, {}))
                for name, array in sample.items()
                if name not in self.order.frozen
            }
            for sample in samples
        ]
        found = compare_on(
            model, reference, filled, soc, contract=self.contract, dims=dims, real=real, limits=self.limits
        )
        return {
            "samples": len(samples),
            "shapes": {name: array.shape for name, array in reference[0].items()},
            "outputs": [to_plain(output.figure) for output in found],
            "remarks": [output.remark for output in found if output.remark],
        }


def _reaches(decibels: float | str, enough: float) -> bool:
    return decibels == "exact" if isinstance(decibels, str) else decibels >= enough
