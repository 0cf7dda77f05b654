"""Cases quantised by hexport and run on the simulator: how near they come, and in what they were computed."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from hexport import HexportError, facts
from hexport.backend.requests import AssignedPart
from hexport.backend.running import run_on_cpu, run_on_htp
from hexport.quantization.plan import SCHEMES, Plan, Precision, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.roles import weight_of
from hexport.quantization.workshop import Workshop
from hexport.rewrite.applying import infer_shapes
from operator_cases import Array, Case, merged

INTEGER, FLOAT, CPU, FAILS = "integer", "float", "cpu", "fails"
_BATCH = 60
_QNN_TYPES = {
    0x0408: "u8", 0x0308: "s8", 0x0416: "u16", 0x0316: "s16", 0x0332: "s32", 0x0216: "f16", 0x0232: "f32",
    0x0508: "bool", 0x0032: "i32", 0x0132: "u32",
}  # fmt: skip
_AROUND = ("Transpose", "Quantize", "Dequantize", "Reshape", "Convert", "Cast")
_QDQ = ("QuantizeLinear", "DequantizeLinear")

Builder = Callable[[onnx.ModelProto, Mapping[str, Array]], ir.Model]


@dataclass(frozen=True)
class Measured:
    """One case in one precision on one chip."""

    case: str
    place: str
    """``integer``, ``float``, ``cpu``, or ``fails``."""
    computed: str
    """The compiler's operators with their types, or why it failed."""
    db: float = math.nan
    """Against the same quantised model on the CPU."""
    db_float: float = math.nan
    """Against the float model on the CPU."""


def in_scheme(scheme: str, *, force: bool = False, arch: int = 75) -> Builder:
    """hexport's own quantisation; ``force``: also what it would leave in float."""

    def build(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> ir.Model:
        model = ir.from_proto(proto)
        infer_shapes(model)
        plan = plan_for(model, SCHEMES[scheme], arch)
        if force:
            _force(model, plan, SCHEMES[scheme])
        with tempfile.TemporaryDirectory() as folder:
            # Without room: what the operator itself can do.
            shop = Workshop(lambda: model, model, [feeds], [feeds], Path(folder), arch, room=1.0)
            return shop.build(plan, Recipe("min-max", correct_bias=False))

    return build


def as_written(proto: onnx.ModelProto, _: Mapping[str, Array]) -> ir.Model:
    """For models that are quantised already."""
    return ir.from_proto(proto)


def _force(model: ir.Model, plan: Plan, scheme: Precision) -> None:
    for node in model.graph:
        known = facts.integer_ops().get(node.op_type)
        if known is not None and known.kind != "deciding" and plan.of(node).activation is None:
            weight = scheme.weight if weight_of(node) is not None else None
            plan.set(str(node.name), Precision(scheme.activation, weight), "forced")


def measure(cases: Sequence[Case], build: Builder, target: facts.Soc) -> dict[str, Measured]:
    """Every case, as many in one session as the compiler takes together."""
    found: dict[str, Measured] = {}
    for opset in sorted({one.opset for one in cases}):
        alike = [one for one in cases if one.opset == opset]
        for start in range(0, len(alike), _BATCH):
            found |= _measure_together(alike[start : start + _BATCH], build, target)
    return found


def _measure_together(cases: Sequence[Case], build: Builder, target: facts.Soc) -> dict[str, Measured]:
    proto, feeds = merged(cases)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(proto, folder / "float.onnx")
        ir.save(build(proto, feeds), folder / "quantised.onnx")
        options = {"dump_json_qnn_graph": "1", "json_qnn_graph_dir": str(folder)}
        try:
            results = run_on_htp(folder / "quantised.onnx", [feeds], target, options=options)
        except HexportError as error:
            if len(cases) == 1:
                return {cases[0].name: Measured(cases[0].name, FAILS, error.why or error.what)}
            half = len(cases) // 2
            parts = (cases[:half], cases[half:])
            return {k: v for part in parts for k, v in _measure_together(part, build, target).items()}
        float_ = run_on_cpu(folder / "float.onnx", [feeds]).outputs[0]
        exact = run_on_cpu(folder / "quantised.onnx", [feeds], optimize=False).outputs[0]
        operators = dict(_operators(folder))
    got = results.outputs[0]
    found = {}
    for one in cases:
        place, computed = _placed(one, results.parts, operators)
        output = f"{one.name}/y"
        found[one.name] = Measured(
            one.name,
            place,
            computed,
            decibels(exact[output], got[output]),
            decibels(float_[output], got[output]),
        )
    return found


def _operators(folder: Path) -> Iterator[tuple[str, tuple[str, list[str], list[str]]]]:
    """The compiler's operators by name, with the types they read and write."""
    for path in folder.glob("*.json"):
        graph = json.loads(path.read_text(encoding="utf-8")).get("graph")
        if graph is None:
            continue
        types = {name: _QNN_TYPES.get(x["data_type"], "?") for name, x in graph["tensors"].items()}
        for name, node in graph["nodes"].items():
            read, written = node["input_names"], node["output_names"]
            yield (
                name,
                (node["type"], [types.get(x, "?") for x in read], [types.get(x, "?") for x in written]),
            )


def _placed(
    one: Case, parts: Sequence[AssignedPart], operators: Mapping[str, tuple[str, list[str], list[str]]]
) -> tuple[str, str]:
    lead = f"{one.name}/"
    left = [
        node.op
        for part in parts
        if part.provider.startswith("CPU")
        for node in part.nodes
        # The Cast that shows a decision is the case's own and not what is measured.
        if node.name.startswith(lead) and node.op not in (*_QDQ, "Cast")
    ]
    if left:
        return CPU, ", ".join(left)
    mine = [found for name, found in operators.items() if name.startswith(lead)]
    inner = [found for found in mine if found[0] not in _AROUND] or mine
    text = " ".join(f"{kind}({','.join(read)}→{','.join(written)})" for kind, read, written in inner)
    floats = any(type_ in ("f16", "f32") for _, read, written in inner for type_ in (*read, *written))
    return (FLOAT if floats else INTEGER), text


def decibels(expected: Array, got: Array) -> float:
    """Infinite when they are the same."""
    reference, noise = expected.astype(np.float64), got.astype(np.float64) - expected.astype(np.float64)
    power = float(np.sum(noise**2))
    return 10 * math.log10(max(float(np.sum(reference**2)), 1e-30) / power) if power else math.inf
