"""How good a candidate is: its outputs against the float model's, on samples it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport import facts
from hexport.model.free_memory import hand_back
from hexport.model.reference import cpu_session, run_each
from hexport.model.weights_beside import remove_with_weights, save_with_weights_beside
from hexport.observe.comparing import Comparison, compare
from hexport.quantization.htp_sums import htp_sums
from hexport.quantization.observing import Sample
from hexport.quantization.weights_as_floats import weights_as_floats
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from hexport.observe.comparing import Outputs
    from hexport.observe.verdict import Verdict


Metric = Callable[["Sequence[Outputs]", Sequence[Sample]], float]
"""From the outputs and the inputs of all samples."""
Samples = tuple["Sequence[Sample]", "Sequence[Outputs]"]


_MOST_OTHERS = 12
_WORK = 8e9
"""Multiply-accumulates that the simulator does for those: 15 seconds. A count and no time, so that the same
gives the same on any machine."""


def affordable_samples(macs: int) -> int:
    """How many samples that it was fitted to a model of so much work is tried on."""
    return min(int(_WORK // max(macs, 1)), _MOST_OTHERS)


def compare_on_cpu(path: Path, samples: Sequence[Sample], reference: Sequence[Outputs]) -> Comparison:
    """A function of its own, so that another process can be asked."""
    return compare(reference, run_each(cpu_session(path, optimize=False, hoard=False), samples))


def _save_for_cpu(model: ir.Model, path: Path) -> None:
    with htp_sums(model), weights_as_floats(model):
        save_with_weights_beside(model, path)
    # The session needs room, and this process has some that it does not use.
    hand_back()


@dataclass
class Judge:
    """Holds what candidates are compared with."""

    target: facts.Soc
    samples: Sequence[Sample]
    reference: Sequence[Outputs]
    """What the float model gives for them."""
    folder: Path
    limits: Limits
    metric: Metric | None = None
    """The user's own measure of results, the larger the better."""
    executor: Executor | None = None
    find_others: Callable[[int], Samples] = lambda _: ([], [])
    """So many samples that candidates are fitted to, and what the float model gives for them."""
    hard: Samples = ([], [])
    """Of those, what turned out to be worst on the NPU: further candidates are judged on it, too."""
    _others: Samples | None = None
    _saved: int = field(default=0)

    def _new_path(self) -> Path:
        self._saved += 1
        return self.folder / f"quantised{self._saved}.onnx"

    def save(self, model: ir.Model) -> Path:
        path = self._new_path()
        ir.save(model, path)
        return path

    def on_cpu(self, *models: ir.Model) -> list[Comparison]:
        """Fast, and mostly what the NPU gives."""
        return self._compared(models, self.samples, self.reference)

    def widely_on_cpu(self, others: int, *models: ir.Model) -> list[Comparison]:
        """The same on so many samples more, that they were fitted to."""
        return self._compared(models, *self._with_others(len(self.samples), others))

    def hard_on_cpu(self, model: ir.Model) -> Comparison | None:
        """The same on what turned out hard; None while nothing has."""
        return self._compared([model], *self.hard)[0] if self.hard[0] else None

    def _compared(
        self, models: Sequence[ir.Model], samples: Sequence[Sample], reference: Sequence[Outputs]
    ) -> list[Comparison]:
        """Side by side where there is an executor."""
        paths = [self._new_path() for _ in models]
        for model, path in zip(models, paths, strict=True):
            _save_for_cpu(model, path)
        mapped = self.executor.map if self.executor is not None else map
        found = list(mapped(compare_on_cpu, paths, repeat(samples), repeat(reference)))
        for path in paths:
            remove_with_weights(path)
        return found

    def outputs_on_npu(self, model: ir.Model, samples: Sequence[Sample]) -> Sequence[Outputs]:
        """What the NPU's own arithmetic gives, and nothing else."""
        # Here, because whoever compares on the CPU alone needs nothing of the NPU.
        from hexport.backend.running import run_on_htp

        path = self.save(model)
        try:
            return run_on_htp(path, samples, self.target, limits=self.limits).outputs
        finally:
            path.unlink()

    def others(self, count: int) -> Samples:
        """Found once, when they are asked for."""
        if self._others is None:
            self._others = self.find_others(count)
        return self._others

    def _with_others(self, samples: int, others: int) -> Samples:
        more, given = self.others(others)
        return [*self.samples[:samples], *more], [*self.reference[:samples], *given]

    def widely_on_npu(self, model: ir.Model, samples: int, others: int) -> tuple[Comparison, int]:
        """On those samples, and after them on others that it was fitted to; and on how many."""
        chosen, reference = self._with_others(samples, others)
        return compare(reference, self.outputs_on_npu(model, chosen)), len(chosen)

    def mind(self, number: int) -> None:
        """That one of the others is hard."""
        assert self._others is not None
        sample, right = (given[number] for given in self._others)
        if not any(known is sample for known in self.hard[0]):
            self.hard = ([*self.hard[0], sample], [*self.hard[1], right])

    def on_npu(self, model: ir.Model, samples: int) -> tuple[Verdict, Comparison, float | None]:
        """The truth, from the NPU's own arithmetic; seconds to minutes a sample."""
        from hexport.observe.check import check_and_run

        path, chosen = self.save(model), self.samples[:samples]
        verdict, outputs = check_and_run(path, self.target, chosen, limits=self.limits)
        path.unlink()
        reference = self.reference[:samples]
        drop = None
        if self.metric is not None:
            drop = self.metric(reference, chosen) - self.metric(outputs, chosen)
        return verdict, compare(reference, outputs), drop
