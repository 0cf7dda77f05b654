"""From graphs to a lowered program: partitioned, compiled part by part, each answer of the backend kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexport.executorch.lowering.inside.asking import STAYS, Answers, blamed, listening
from hexport.executorch.lowering.inside.programs import Program
from hexport.executorch.lowering.inside.readying import origin
from hexport.executorch.lowering.inside.stack import stack
from hexport.toolchain.serving import JobError

_LEFT_WHOLE = "was not decomposed or delegated"
_PASS = re.compile(r"running the '(\w+)' pass")
_TRIES = 4
_TOLD = 4
_QUANTISED_MARKS = ("quant_attrs", "requantize")
"""What ExecuTorch notes on nodes of a quantised graph."""


@dataclass(frozen=True)
class Part:
    """One method on its way."""

    program: Program
    module: Any
    """The graph, quantised or not."""
    floats: frozenset[str] = frozenset()
    """Operators that stay float on the NPU beside quantised ones."""
    left: frozenset[str] = frozenset()
    """Operators that stay on the CPU."""


@dataclass
class Lowering:
    """All methods of a file, lowered together."""

    parts: Mapping[str, Part]
    spec: list[Any]
    log: Path
    linear_to_conv2d: bool = False
    skip_mutable_buffer: bool = False
    loosened: dict[str, set[str]] = field(default_factory=dict)
    """Method → operators that the backend refused whole, and that are decomposed therefore."""

    def run(self) -> tuple[Any, Answers]:
        """The lowered program.

        Operators that ExecuTorch keeps whole for QNN, and that QNN refuses, would end it: these are
        decomposed, and it is tried again.
        """
        for _ in range(_TRIES):
            answers = Answers()
            try:
                return self._once(answers), answers
            except UnboundLocalError as error:  # what ExecuTorch stumbles over when there is no part at all
                raise JobError("NotDelegated", _refusals(answers).strip()) from error
            except (JobError, MemoryError):
                raise
            except Exception as error:
                if _LEFT_WHOLE not in str(error) or not self._loosen(answers):
                    raise JobError("LoweringFailed", self._words(error, answers)) from error
        raise JobError("LoweringFailed", f"operators stay that nobody takes{_refusals(answers)}")

    def _once(self, answers: Answers) -> Any:
        known = stack()
        exported, passes, partitioners = {}, {}, {}
        for name, part in self.parts.items():
            program = self._exported(part)
            manager = known.tools.get_qnn_pass_manager_cls()()
            exported[name] = manager.transform_for_export_pipeline(program)
            passes[name] = manager.get_to_edge_transform_passes(
                program,
                compiler_specs=self.spec,
                skip_node_id_set=set(),
                skip_node_op_set=set(),
                convert_linear_to_conv2d=self.linear_to_conv2d,
            )
            partitioners[name] = self._partitioners(name, part, answers)
        with (
            known.tools.QnnManagerContext(dict.fromkeys(self.parts, self.spec)),
            listening(self.log, answers),
        ):
            return known.program.to_edge_transform_and_lower(
                exported,
                transform_passes=passes,
                partitioner=partitioners,
                compile_config=known.tools.qnn_edge_config(),
            )

    def _exported(self, part: Part) -> Any:
        torch, program = stack().torch, part.program
        return torch.export.export(part.module, program.args, dict(program.kwargs), strict=True)

    def _partitioners(self, name: str, part: Part, answers: Answers) -> list[Any]:
        loose = self.loosened.get(name, set()) | part.left
        first = self._partitioner(answers, part.floats | part.left, loose, only=None)
        if not part.floats:
            return [first]
        return [first, self._partitioner(answers, part.left, loose, only=part.floats)]

    def _partitioner(
        self, answers: Answers, withheld: frozenset[str], loose: set[str], only: frozenset[str] | None
    ) -> Any:
        class Partitioner(stack().partitioner.QnnPartitioner):  # type: ignore[misc]
            def ops_to_not_decompose(self, ep: Any) -> Any:
                ops, keep = super().ops_to_not_decompose(ep)
                return ops, lambda node: keep(node) and origin(node) not in loose

            def partition(self, edge_program: Any) -> Any:
                answers.withheld, answers.only = withheld, only
                if only is not None:
                    _forget_integers(edge_program)
                return super().partition(edge_program)

        return Partitioner(self.spec, skip_mutable_buffer=self.skip_mutable_buffer)

    def _words(self, error: Exception, answers: Answers) -> str:
        """What ended it, and which operators the compiler named."""
        said = _said(error)
        names = blamed(self.log, answers)
        at = f"\nthe compiler stopped at {', '.join(names[:_TOLD])}" if names else ""
        return f"{said}{at}{_refusals(answers)}"

    def _loosen(self, answers: Answers) -> bool:
        """Whether there is anything new to decompose."""
        asked = [name for name, why in answers.refused.items() if why != STAYS]
        refused = {found for name in asked if (found := answers.origins.get(name))}
        new = False
        for name in self.parts:
            known = self.loosened.setdefault(name, set())
            new |= bool(refused - known)
            known |= refused
        return new


def _said(error: BaseException) -> str:
    """A pass that fails is wrapped in the list of all that went before it; what it failed of says more."""
    within = _PASS.search(str(error))
    while error.__cause__ is not None:
        error = error.__cause__
    said = f"{type(error).__name__}: {error}"
    return f"{said} (in its pass {within[1]})" if within else said


def _forget_integers(edge_program: Any) -> None:
    """What is left after the quantised parts are out is float: a range noted on it is that of a neighbour."""
    for node in edge_program.graph.nodes:
        if node.op == "call_function":
            for mark in _QUANTISED_MARKS:
                node.meta.pop(mark, None)


def _refusals(answers: Answers) -> str:
    """The first few operators that were refused, for a failure's own words."""
    asked = [(answers.where[name], why) for name, why in answers.refused.items() if why != STAYS]
    return "".join(f"\n{place}: {why}" for place, why in dict(asked[:_TOLD]).items())
