"""One model as it is tried, of the zoo or a file of its own: its inputs, its right answers, the judging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hexport import HexportError, facts, zoo
from hexport.backend.running import run_on_cpu
from hexport.model import read
from hexport.observe.check import check_and_run
from hexport.observe.comparing import compare
from hexport.observe.decibels import finite
from hexport.toolchain import Limits
from plain_runs import one_line
from quantize_report import Measured
from quantize_sides import Feed, Made, write_samples
from zoo_tasks import Task, task_of

CALIBRATION = 8


@dataclass
class Case:
    """One model of the zoo with its inputs and reference answers, made when they are first needed."""

    name: str
    soc: facts.Soc
    test_samples: int
    folder: Path
    most: int | None = None
    """Inputs for the task's figures at most; None for as many as the task wants."""

    @cached_property
    def samples(self) -> list[Feed]:
        """The test inputs, and after them more for the task's figures where those need more."""
        test: list[Feed] = [*zoo.inputs(self.name, split="test", count=self.test_samples)]
        wanted = self.task.count if self.task else 0
        if self.most is not None:
            wanted = min(wanted, self.most)
        if wanted <= len(test):
            return test
        more = zoo.inputs(self.name, split="test", count=wanted)
        # Most kinds give the same ones first, and the simulator takes seconds for each: none is run twice.
        return [*test, *(one for one in more if not any(_same(one, other) for other in test))]

    @cached_property
    def task(self) -> Task | None:
        return task_of(zoo.entry(self.name).kind)

    @cached_property
    def source(self) -> Path:
        """The model as it came."""
        return zoo.get(self.name)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes at which it is tried."""
        return zoo.entry(self.name).input_shapes

    @property
    def asked(self) -> list[str]:
        """What ``hexport prepare`` is asked for."""
        return [f"zoo:{self.name}"]

    @cached_property
    def reference(self) -> tuple[Feed, ...]:
        return run_on_cpu(self.source, self.samples).outputs

    def calibration(self, model: Path) -> Path:
        """A folder of samples for those inputs that ``model`` has; frozen ones are not among them."""
        keep = set(read(model).graph.inputs)
        folder = self.folder / f"calib-{len(keep)}"
        if not folder.is_dir():
            write_samples(self.fitting, folder, keep)
        return folder

    @property
    def fitting(self) -> Sequence[Feed]:
        """What both sides calibrate by."""
        return zoo.inputs(self.name, split="calib", count=CALIBRATION)

    def judge(self, side: str, scheme: str, made: Made) -> Measured:
        """Run what was made on the simulator, if anything was."""
        figures = Measured(
            self.name, side, scheme, made.seconds, made.peak_bytes, made.size, made.failure, dict(made.said)
        )
        if made.file is None:
            return figures
        inputs = set(read(made.file).graph.inputs)
        fed = [{name: array for name, array in one.items() if name in inputs} for one in self.samples]
        try:
            verdict, got = check_and_run(made.file, self.soc, fed, limits=Limits(1800.0))
        except HexportError as error:
            return figures.failed(one_line(f"does not run: {error.code} {error.what}: {error.why}"))
        count = self.test_samples
        return figures.ran(
            sqnr_db=finite(compare(self.reference[:count], got[:count]).sqnr_db),
            npu=verdict.nodes.npu,
            cpu=len(verdict.cpu_nodes),
            partitions=len(verdict.partitions),
            precisions=verdict.precisions,
            tasks=self.task.measure(self.reference, got) if self.task else {},
        )


@dataclass
class OwnCase(Case):
    """A model from a file, with an archive of inputs to calibrate by and one that no side sees."""

    files: Sequence[Path] = ()
    """The model, and the two archives: an array for each input, samples first."""

    @cached_property
    def samples(self) -> list[Feed]:
        return _samples(self.files[2])[: self.test_samples]

    @property
    def task(self) -> None:
        return None

    @property
    def source(self) -> Path:
        return self.files[0]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.samples[0].items()}

    @property
    def asked(self) -> list[str]:
        return [str(self.files[0]), "--calib", str(self.files[1])]

    @property
    def fitting(self) -> Sequence[Feed]:
        return _samples(self.files[1])


def _samples(archive: Path) -> list[Feed]:
    with np.load(archive) as file:
        arrays = dict(file)
    return [dict(zip(arrays, one, strict=True)) for one in zip(*arrays.values(), strict=True)]


def _same(one: Feed, other: Feed) -> bool:
    return all(np.array_equal(array, other[name]) for name, array in one.items())
