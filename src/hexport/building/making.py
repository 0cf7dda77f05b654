"""The work: every bucket made ready, compiled for every chip, and verified."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts
from hexport.backend.failures import CompileFailed
from hexport.building.assembling import ForChip
from hexport.building.buckets import Sizes
from hexport.building.digests import samples_digest
from hexport.building.inputs import Inputs, open_inputs
from hexport.building.order import Order
from hexport.building.padding_proof import MOST_SAMPLES, Proof, Trial, prove, prove_together
from hexport.building.shortening import shortened
from hexport.building.steps import CompiledFiles, Ready, Steps
from hexport.building.wishes import SCHEMES, Wishes
from hexport.compiling.options import CompileOptions
from hexport.records import from_plain, to_plain
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample

_BESIDE_SHARED = "16a8w"
"""The base of a bucket whose every node is settled by another's decisions."""


@dataclass
class Making:
    """One build at work."""

    order: Order
    steps: Steps
    options: CompileOptions
    folder: Path
    limits: Limits
    share: bool
    preprocess: str | Path | None = None
    samples: int | None = None
    notes: list[str] = field(default_factory=list)
    shortfalls: list[str] = field(default_factory=list)
    reports: dict[str, Any] = field(default_factory=dict)

    @property
    def largest(self) -> Sizes:
        return self.order.buckets[-1]

    def open(self) -> AbstractContextManager[Inputs]:
        """Inputs at the largest bucket's sizes."""
        order = self.order
        return open_inputs(
            order.source.graph,
            order.name,
            order.calib,
            self.largest,
            order.frozen,
            order.fill,
            self.preprocess,
            self.samples,
        )

    def inputs_at(self, sizes: Sizes, whole: Inputs) -> AbstractContextManager[Inputs]:
        """The same inputs, cut to a smaller bucket's sizes."""
        order = self.order
        dims = {dim: sizes.dims[dim] for dim in order.varying}
        every = whole.samples if whole.data is None else whole.data

        def smaller() -> Iterator[Sample]:
            return (shortened(sample, order.places, dims) for sample in every)

        calib = smaller if whole.real else None
        return open_inputs(order.source.graph, order.name, calib, sizes, order.frozen, {}, None, None)

    def make_all(self, whole: Inputs, opened: Mapping[str, Inputs]) -> list[ForChip]:
        """Every chip's; those of one generation are compiled from the same models."""
        ready: dict[tuple[int, bool], dict[str, Path]] = {}
        found = []
        for soc in self.order.chips:
            generation = (soc.htp_arch, soc.float)
            if generation not in ready:
                ready[generation] = self.make_ready(soc, whole, opened)
            compiled, shared = self.compile(soc, ready[generation])
            found.append(ForChip(soc, compiled, ready[generation], shared))
        return found

    def prove_padding(self, whole: Inputs) -> tuple[Proof, ...]:
        """Whether sizes between the buckets may be filled up, dim by dim and together."""
        order = self.order
        if not order.varied:
            return ()

        def prove_all() -> dict[str, Any]:
            from hexport.building.original import original

            self.steps.say("asking the original model whether inputs may be filled up")
            samples = whole.samples[::-1][:MOST_SAMPLES]  # the last first: it is verified on, too
            with original(order.source.path, self.limits) as run:
                trial = Trial(order.places, order.buckets, samples, order.pad, run, order.sums)
                alone = [prove(dim, trial) for dim in order.varied]
                return {"proofs": to_plain(prove_together(alone, trial))}

        found = self.steps.document(
            "padding",
            prove_all,
            source=self.steps.digests.of_model(order.source),
            buckets=to_plain(order.buckets),
            varied=order.varied,
            inputs=whole.digest,
            frozen=samples_digest([dict(order.frozen)]),
            pad=dict(order.pad),
        )
        return tuple(from_plain(Proof, proof) for proof in found["proofs"])

    def make_ready(self, soc: facts.Soc, whole: Inputs, opened: Mapping[str, Inputs]) -> dict[str, Path]:
        """Bucket -> the model that is compiled, for chips of one generation."""
        if not self.order.is_integer:
            found = self._in_float(soc, opened)
        else:
            found = self._quantised(soc, whole, opened)
        self._tell(found, soc)
        return {name: ready.path for name, ready in found.items()}

    def compile(self, soc: facts.Soc, models: Mapping[str, Path]) -> tuple[CompiledFiles, bool]:
        """Context binaries; and whether the buckets share one."""
        if self.share and len(models) > 1:
            try:
                return self.steps.compiled(models, soc, self.options, share=True), True
            except CompileFailed as error:
                self.notes.append(f"{soc.chip}: the buckets have a binary each, sharing failed: {error.why}")
        return self.steps.compiled(models, soc, self.options, share=False), False

    def _in_float(self, soc: facts.Soc, opened: Mapping[str, Inputs]) -> dict[str, Ready]:
        first = self.steps.in_float(soc, self.largest, opened[self.largest.name])
        cures = first.report["cures"]
        smaller = {
            sizes.name: self.steps.in_float(soc, sizes, opened[sizes.name], cures)
            for sizes in self.order.buckets[:-1]
        }
        return {**smaller, self.largest.name: first}

    def _quantised(self, soc: facts.Soc, whole: Inputs, opened: Mapping[str, Inputs]) -> dict[str, Ready]:
        first = self.steps.in_integers(soc, self.largest, whole, self.order.wishes)
        if not first.report["met"]:
            self.shortfalls.append(_short(first.report, soc))
        found = {}
        for sizes in self.order.buckets[:-1]:
            if first.report["chosen"] == "fp16":
                found[sizes.name] = self.steps.in_float(soc, sizes, opened[sizes.name], first.report["cures"])
            else:
                found[sizes.name] = self._like(first, soc, sizes, opened[sizes.name])
        return {**found, self.largest.name: first}

    def _like(self, first: Ready, soc: facts.Soc, sizes: Sizes, inputs: Inputs) -> Ready:
        """A smaller bucket with the precisions, ranges and weights of the largest."""
        assert first.decisions is not None
        chosen = str(first.report["chosen"])
        base = Wishes(chosen if chosen in SCHEMES else _BESIDE_SHARED)
        ready = self.steps.in_integers(soc, sizes, inputs, base, self._settled(first.decisions, soc))
        adopted = self.steps.adopted(ready, first)
        alone = int(adopted.report["own_bytes"])
        if alone > adopted.path.stat().st_size / 10:
            self.notes.append(
                f"{sizes.name}: {alone / 1e6:.1f} MB of its weights are not those of {self.largest.name}"
            )
        return adopted

    def _tell(self, found: Mapping[str, Ready], soc: facts.Soc) -> None:
        """Reports, and their warnings: what is true of all buckets once."""
        said: dict[str, list[str]] = {}
        for name, ready in found.items():
            self.reports[f"{name}/{soc.chip}"] = ready.report
            # What follows another's decisions was judged there; the report has what was said of it here.
            for warning in ready.report["warnings"] if "own_bytes" not in ready.report else ():
                said.setdefault(warning, []).append(name)
        judged = sum("own_bytes" not in ready.report for ready in found.values())
        for warning, names in said.items():
            self.notes.append(warning if len(names) == judged else f"{', '.join(names)}: {warning}")

    def _settled(self, decisions: Path, soc: facts.Soc) -> Path:
        """The largest bucket's decisions for the others, whose graphs may lack some of the nodes."""
        document = json.loads(decisions.read_text("utf-8"))
        path = self.folder / f"{soc.chip}.settled.json"
        path.write_text(json.dumps({**document, "partial": True}, sort_keys=True), "utf-8")
        return path


def _short(report: Mapping[str, Any], soc: facts.Soc) -> str:
    if report["failure"]:
        return f"{soc.chip}: the quantised model fails on the NPU, {report['failure']}"
    if report["max_drop"] is not None:
        return f"{soc.chip}: the metric loses {report['metric_drop']}, {report['max_drop']} was allowed"
    best = report["sqnr_db"]
    found = best if isinstance(best, str) else f"{best:.1f} dB"
    return f"{soc.chip}: the best that was found has {found}, {report['goal_db']:g} dB were asked for"
