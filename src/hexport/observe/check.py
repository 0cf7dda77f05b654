"""``check``: ask Qualcomm's compiler what of a model runs on the NPU, and why the rest does not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from hexport import facts, zoo
from hexport.backend.probe import Evidence, probe
from hexport.errors import UsageError
from hexport.model import Graph, Model, Node, TensorType, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.macs import macs
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.placement import Names, Placement, cutting_nodes, place
from hexport.observe.verdict import CpuNode, Partition, Share, Verdict, parse_percent
from hexport.toolchain import Limits

_EDGE_OPS = {"QuantizeLinear", "DequantizeLinear"}
_LEFT_OUT = "The provider supports this node, but left it to the CPU"


def check(
    model: str | Path,
    *,
    target: str | int,
    scheme: str | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    require: str | None = None,
    limits: Limits | None = None,
    native_log: Path | None = None,
) -> Verdict:
    """What of ``model`` runs on ``target``. Raises a :class:`HexportError` when it cannot be found out."""
    if require not in (None, "full"):
        parse_percent(str(require))
    soc = facts.find_target(target)
    source = read(zoo.resolve(model))
    notes: list[str] = []
    if not dims and not input_shapes:
        input_shapes = _zoo_shapes(model, notes)
    shapes = fix_shapes(
        source.graph, dims or {}, input_shapes or {}, f"hexport check '{model}' --target {soc.chip}"
    )
    with tempfile.TemporaryDirectory(prefix="hexport-") as folder:
        workdir = Path(folder)
        try:
            evidence = probe(stage(source, shapes, workdir), soc, workdir, limits=limits)
        finally:
            if native_log is not None and (workdir / "native.log").exists():
                shutil.copyfile(workdir / "native.log", native_log)
    found = scheme_of(source.graph, evidence.types)
    _refuse_other_scheme(scheme, found)
    return _verdict(str(model), source, soc, found, shapes, evidence, notes)


def _zoo_shapes(model: str | Path, notes: list[str]) -> Mapping[str, Shape] | None:
    entry = zoo.entry_of(model)
    if entry is None:
        return None
    listed = " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in entry.input_shapes.items())
    notes.append(f"no sizes were given; the zoo's own are used: {listed}")
    return entry.input_shapes


def _refuse_other_scheme(asked: str | None, found: str) -> None:
    if asked is not None and asked != found:
        raise UsageError(
            f"the model is {found}, --scheme asks for {asked}",
            why="check looks at the model as it is; it does not quantise",
            next=f"leave --scheme out, or give a model that is {asked} already",
        )


def _verdict(
    name: str,
    model: Model,
    soc: facts.Soc,
    scheme: str,
    shapes: dict[str, Shape],
    evidence: Evidence,
    notes: list[str],
) -> Verdict:
    placement = place(model.graph, evidence.parts, evidence.trace)
    types = {**model.graph.constants, **evidence.types}
    counts = {node.name: macs(node, types) for node in model.graph.walk()}
    edge = _edge_quantization(model.graph, placement)
    compute_on_cpu = [name for name in placement.cpu if name not in edge]
    on_npu = placement.on_npu
    return Verdict(
        model=name,
        target=soc,
        scheme=scheme,
        input_shapes=shapes,
        nodes=Share(len(on_npu), len(compute_on_cpu)),
        macs=Share(_total(counts, on_npu), _total(counts, compute_on_cpu)),
        uncounted=tuple(name for name in (*on_npu, *compute_on_cpu) if counts[name] is None),
        partitions=tuple(_partition(part) for part in placement.npu),
        cpu_nodes=_cpu_nodes(model.graph, placement, evidence, compute_on_cpu, counts),
        io_quantization=tuple(edge),
        folded=len(placement.folded),
        precisions=evidence.log.precisions,
        compile_seconds=evidence.compile_seconds,
        ddr=evidence.log.ddr,
        context_bytes=evidence.context_bytes,
        warnings=(*notes, *evidence.notes, *_warnings(model.graph, soc, scheme, types, on_npu)),
    )


def _total(counts: Mapping[str, int | None], names: Iterable[str]) -> int:
    return sum(counts[name] or 0 for name in names)


def _partition(names: tuple[str, ...]) -> Partition:
    return Partition(len(names), names[0] if names else "", names[-1] if names else "")


def _edge_quantization(graph: Graph, placement: Placement) -> list[str]:
    """Q/DQ on the CPU that touch the model's own inputs or outputs: the provider leaves those there."""
    nodes = {node.name: node for node in graph.nodes}
    return [
        name
        for name in placement.cpu
        if name in nodes
        and nodes[name].op in _EDGE_OPS
        and (nodes[name].inputs[0] in graph.inputs or nodes[name].outputs[0] in graph.outputs)
    ]


def _cpu_nodes(
    graph: Graph,
    placement: Placement,
    evidence: Evidence,
    compute: list[str],
    counts: Mapping[str, int | None],
) -> tuple[CpuNode, ...]:
    names = Names(graph, evidence.trace.tensor_of)
    reasons = {names.original(node.name): node.reason for node in evidence.trace.unsupported}
    holder = {inner.name: node for node in graph.nodes for body in node.bodies for inner in body.walk()}
    cuts = cutting_nodes(graph, placement)
    result = []
    for name in compute:
        node = names.nodes[name]
        reason = reasons.get(name) or _reason_without_words(node, holder, placement)
        advice = facts.advise(node.op, node.domain, reason)
        result.append(
            CpuNode(name, node.op, reason, advice.cause, advice.advice, counts[name], cuts=name in cuts)
        )
    for made in placement.made_cpu:
        reason = next((n.reason for n in evidence.trace.unsupported if n.name == made.name), _LEFT_OUT)
        advice = facts.advise(made.op, made.domain, reason)
        label = f"{made.name or made.op} (made by ONNX Runtime)"
        result.append(CpuNode(label, made.op, reason, advice.cause, advice.advice, None, cuts=False))
    return tuple(result)


def _reason_without_words(node: Node, holder: Mapping[str, Node], placement: Placement) -> str:
    if node.name in holder and holder[node.name].name in placement.cpu:
        outer = holder[node.name]
        return f"It is inside the body of {outer.op} `{outer.name}`, which is on the CPU"
    return _LEFT_OUT


def _warnings(
    graph: Graph, soc: facts.Soc, scheme: str, types: Mapping[str, TensorType], on_npu: frozenset[str]
) -> list[str]:
    found: list[str] = []
    if scheme == "fp16" and not soc.float:
        found.append(
            f"{soc.chip} has no float arithmetic on its NPU: a float model has to be quantised for it"
        )
    if not on_npu:
        found.append("nothing of this model runs on the NPU")
    if origins := _origins_of_dynamic(graph, types):
        shown = ", ".join(f"{node.op} `{node.name}`" for node in origins[:5])
        more = f" and {len(origins) - 5} more" if len(origins) > 5 else ""
        found.append(f"shapes stay dynamic although every input is fixed; they begin at {shown}{more}")
    if doubles := [
        n.name for n in graph.nodes if any(types[o].dtype == "float64" for o in n.outputs if o in types)
    ]:
        found.append(
            f"{len(doubles)} nodes compute in float64, which the NPU does not have (first: `{doubles[0]}`)"
        )
    return found


def _origins_of_dynamic(graph: Graph, types: Mapping[str, TensorType]) -> list[Node]:
    """The nodes where fixed shapes go in and a dynamic one comes out."""
    return [
        node
        for node in graph.nodes
        if any(name in types and not types[name].is_static for name in node.outputs)
        and all(types[name].is_static for name in node.inputs if name in types)
    ]
