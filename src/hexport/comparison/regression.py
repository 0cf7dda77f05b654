"""The figures of two sides as rows, each judged by what is worse about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from hexport.backend.where import HTP
from hexport.comparison.measuring import Measured
from hexport.comparison.rows import Cell, Row, Unit, Value, in_a_line
from hexport.comparison.tolerance import Tolerance
from hexport.observe.verdict import CpuNode, Verdict
from hexport.verification.subject import CPU

_MOST_NAMED = 3
_MORE_WORK = "not judged: B takes nodes that A leaves to the CPU, which brings more of this"


@dataclass(frozen=True)
class _Figure:
    """A figure that is read off a verdict."""

    name: str
    label: str
    unit: Unit
    of: Callable[[Verdict], Value | None]
    judged: Literal["", "any", "beyond"] = ""
    """By any increase, or by one beyond the tolerance."""


_FIGURES = (
    _Figure("nodes_npu", "nodes on the NPU", "count", lambda v: v.nodes.npu),
    _Figure("nodes_cpu", "nodes on the CPU", "count", lambda v: v.nodes.cpu),
    _Figure("macs_percent", "MACs on the NPU", "percent", lambda v: _macs_percent(v)),
    _Figure("partitions", "partitions", "count", lambda v: len(v.partitions), "any"),
    _Figure("precisions", "precision", "operators", lambda v: v.precisions or None),
    _Figure("compile_seconds", "compile time here", "seconds", lambda v: v.compile_seconds),
    _Figure("context_bytes", "context", "bytes", lambda v: v.context_bytes, "beyond"),
    _Figure("ddr_bytes", "DDR traffic", "bytes", lambda v: _traffic(v), "beyond"),
    _Figure("ddr_read_bytes", "  read", "bytes", lambda v: v.ddr.read_total if v.ddr else None),
    _Figure("ddr_written_bytes", "  written", "bytes", lambda v: v.ddr.write_total if v.ddr else None),
    _Figure("ddr_spilled_bytes", "  of that spilled", "bytes", lambda v: v.ddr.spill if v.ddr else None),
    _Figure("ddr_filled_bytes", "  of that filled", "bytes", lambda v: v.ddr.fill if v.ddr else None),
)
_ELSEWHERE = {
    "nodes_npu": "nodes on the backend",
    "nodes_cpu": "nodes on ONNX Runtime's CPU",
    "macs_percent": "MACs on the backend",
}
"""What it is called where not all is about the NPU."""
# Traffic is judged as a whole: a model that reads 10 MB is no slower for writing 10 KB instead of 8.


def compiled_rows(a: Measured, b: Measured, tolerance: Tolerance) -> Iterator[Row]:
    """What the compilers did."""
    works = Row("works", "compiles and runs", "answer", _works(a), _works(b))
    yield replace(works, worse="it fails on B") if works.a.value and not works.b.value else works
    on_npu = {a.side.backend, b.side.backend} <= {HTP, CPU}
    for figure in _FIGURES:
        label = figure.label if on_npu else _ELSEWHERE.get(figure.name, figure.label)
        row = Row(figure.name, label, figure.unit, _cell(figure, a), _cell(figure, b))
        if figure.name == "nodes_cpu":
            yield replace(row, worse=_named(new_cpu_nodes(a, b)))
        elif (worse := _grown(row, figure, tolerance)) and _takes_more(a, b):
            yield replace(row, b=replace(row.b, note=_MORE_WORK))
        else:
            yield replace(row, worse=worse)
        if figure.name == "compile_seconds":
            yield Row("cpu_seconds", "CPU time here, with the runs", "seconds", _cpu_time(a), _cpu_time(b))


def new_cpu_nodes(a: Measured, b: Measured) -> tuple[CpuNode, ...]:
    """The nodes that the CPU has on side B and not on side A."""
    if a.verdict is None or b.verdict is None:
        return ()
    known = {node.name for node in a.verdict.cpu_nodes}
    new = [node for node in b.verdict.cpu_nodes if node.name not in known]
    if a.traced and b.traced:
        return tuple(new)
    # Without a trace a fused node keeps ONNX Runtime's name, and two names may be one node: count operators.
    before, after = (Counter(node.op for node in m.verdict.cpu_nodes) for m in (a, b) if m.verdict)
    return tuple(node for node in new if after[node.op] > before[node.op])


def _works(measured: Measured) -> Cell:
    error = measured.failure
    if error is None:
        return Cell(True)
    stage = "compiled, but not run" if measured.verdict is not None else "not compiled"
    return Cell(False, f"{stage}: {in_a_line(error)}")


def _cpu_time(measured: Measured) -> Cell:
    if measured.failure is not None:
        return Cell(note="it did not come to an end")
    if measured.cpu_seconds is None:
        return Cell(note="this system does not tell what a process took")
    return Cell(measured.cpu_seconds)


def _cell(figure: _Figure, measured: Measured) -> Cell:
    if measured.verdict is None:
        return Cell(note=_nothing_compiled(measured))
    value = figure.of(measured.verdict)
    return Cell(value) if value is not None else Cell(note=_why_not(figure, measured, measured.verdict))


def _nothing_compiled(measured: Measured) -> str:
    if measured.side.backend == CPU:
        return "ONNX Runtime's own CPU provider compiles nothing"
    return f"{measured.side.backend} of {measured.side.toolchain} did not compile it"


def _why_not(figure: _Figure, measured: Measured, verdict: Verdict) -> str:
    side = measured.side
    if not verdict.nodes.npu:
        return f"nothing of the model runs on {side.backend} of {side.toolchain}"
    if figure.name == "precisions" and not measured.traced:
        release = side.packages.get("onnxruntime-qnn", "of this toolchain")
        return f"onnxruntime-qnn {release} writes no trace of what it compiled"
    if figure.name == "macs_percent":
        return "the model has no MACs that could be counted"
    if side.backend != HTP:
        return f"only the NPU's compiler tells it; {side.backend} does not"
    if figure.name == "context_bytes":
        unsaved = [warning for warning in verdict.warnings if "context could not be saved" in warning]
        return next(iter(unsaved), f"the compiler of {side.toolchain} wrote none")
    return f"the compiler of {side.toolchain} did not tell it"


def _grown(row: Row, figure: _Figure, tolerance: Tolerance) -> str:
    a, b = row.a.number, row.b.number
    if a is None or b is None or not figure.judged:
        return ""
    if figure.judged == "any":
        return f"{b - a:g} more" if b > a else ""
    return f"more than {tolerance.max_more_percent:g} % more" if tolerance.too_much(a, b) else ""


def _takes_more(a: Measured, b: Measured) -> bool:
    return a.verdict is not None and b.verdict is not None and b.verdict.nodes.cpu < a.verdict.nodes.cpu


def _named(nodes: tuple[CpuNode, ...]) -> str:
    if not nodes:
        return ""
    shown = ", ".join(f"{node.op} `{node.name}`" for node in nodes[:_MOST_NAMED])
    more = f" and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    return f"new on the CPU: {shown}{more}"


def _macs_percent(verdict: Verdict) -> float | None:
    return verdict.macs.percent if verdict.macs.npu + verdict.macs.cpu else None


def _traffic(verdict: Verdict) -> int | None:
    return None if verdict.ddr is None else verdict.ddr.read_total + verdict.ddr.write_total
