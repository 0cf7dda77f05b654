"""Each bucket and chip on the simulator, against the original model on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts
from hexport.backend.running import run_on_cpu, run_on_htp
from hexport.building.assembling import ForChip
from hexport.building.buckets import Sizes
from hexport.building.digests import samples_digest
from hexport.building.order import Order
from hexport.building.shortening import shortened
from hexport.building.steps import Steps
from hexport.model.digests import digest_of
from hexport.observe.comparing import compare
from hexport.observe.decibels import USELESS_DB, finite
from hexport.packaging.manifest import Contract, OutputFigure, Verification
from hexport.records import to_plain
from hexport.runtime.padding import cut, pad, pad_values
from hexport.storage import file_digest
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

    def verify(self, chip: ForChip, samples: Mapping[str, Sequence[Sample]]) -> Iterator[Verification]:
        """Every bucket at its own sizes, and filled up from smaller ones where the contract allows it."""
        for sizes in self.order.buckets:
            model = chip.model_to_run(sizes.name)
            yield self._one(chip.soc, model, sizes, samples[sizes.name], {})
            if dims := self._smaller(sizes):
                true = shortened(samples[sizes.name][0], self.order.places, dims)
                yield self._one(chip.soc, model, sizes, [true], dims)

    def _smaller(self, sizes: Sizes) -> dict[str, int]:
        """Sizes below the bucket's, of the dims that are filled up."""
        padded = {(padding.input, padding.axis) for padding in self.contract.padding}
        # In the order's own order: a set's would change from run to run, and the manifest with it.
        filled = [dim for dim in self.order.varied if padded.intersection(self.order.places[dim])]
        return {dim: size - max(1, size // 4) for dim in filled if (size := sizes.dims[dim]) > 1}

    def _one(
        self, soc: facts.Soc, model: Path, sizes: Sizes, samples: Sequence[Sample], dims: dict[str, int]
    ) -> Verification:
        measured = self.steps.document(
            "verify",
            lambda: self._measure(soc, model, sizes, samples, dims),
            source=digest_of(self.order.source),
            model=digest_of(model),
            binaries=sorted(file_digest(path) for path in model.parent.glob("*.bin")),
            soc=soc.soc_model,
            samples=samples_digest(samples),
            dims=dims,
            contract=to_plain(self.contract),
        )
        if not dims:
            self.output_shapes[sizes.name] = {o["name"]: tuple(o["shape"]) for o in measured["outputs"]}
        asked, lowest = self.order.wishes.min_sqnr, measured["lowest_db"]
        enough = USELESS_DB if asked is None else asked
        passed = lowest == "exact" or (isinstance(lowest, float | int) and lowest >= enough)
        figures = tuple(
            OutputFigure(o["name"], o["sqnr_db"], o["max_abs_error"]) for o in measured["outputs"]
        )
        return Verification(soc.chip, sizes.name, SIMULATOR, len(samples), asked, passed, figures, dims)

    def _measure(
        self, soc: facts.Soc, model: Path, sizes: Sizes, samples: Sequence[Sample], dims: dict[str, int]
    ) -> dict[str, Any]:
        self.steps.say(f"{soc.chip}: verifying {sizes.name} on the simulator")
        reference = run_on_cpu(self.order.source.path, samples, limits=self.limits).outputs
        values = pad_values(self.contract)
        filled = [
            {
                name: pad(array, sizes.shapes[name], values.get(name, {}))
                for name, array in sample.items()
                if name not in self.order.frozen
            }
            for sample in samples
        ]
        got = run_on_htp(model, filled, soc, limits=self.limits).outputs
        found = compare(reference, [cut(outputs, self.contract, dims) for outputs in got])
        return {
            "lowest_db": finite(found.lowest_db),
            "outputs": [
                {
                    "name": o.name,
                    "sqnr_db": finite(o.lowest_db),
                    "max_abs_error": _number(o.worst_error),
                    "shape": reference[0][o.name].shape,
                }
                for o in found.outputs
            ],
        }


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None
