"""From all that the backend said about a model to the verdict, in the names of the user's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hexport import facts
from hexport.backend.probe import Evidence
from hexport.backend.requests import AssignedNode
from hexport.backend.tracing import traces
from hexport.backend.where import Where
from hexport.facts.backends import Refusal, advise_on, backend_faults
from hexport.model import Graph, Model, Node, TensorType
from hexport.model.dims import Shape
from hexport.model.macs import macs
from hexport.observe.placement import Names, Placement, cutting_nodes, place
from hexport.observe.verdict import CpuNode, Partition, Share, Verdict

# The cause that the facts give to Q/DQ which the provider leaves to the CPU on purpose.
_OFFLOADED = "io-quantization-offloaded"
_LEFT_OUT = "The provider supports this node, but left it to the CPU"


def judge(
    name: str,
    model: Model,
    where: Where,
    scheme: str,
    shapes: dict[str, Shape],
    evidence: Evidence,
    notes: list[str],
) -> Verdict:
    """What became of every node."""
    placement = _with_unlisted(place(model.graph, evidence.parts, evidence.trace), model.graph, evidence)
    types = {**model.graph.constants, **evidence.types}
    counts = {node.name: macs(node, types) for node in model.graph.walk()}
    on_cpu = _cpu_nodes(model.graph, where, placement, evidence, counts)
    compute = tuple(node for node in on_cpu if node.cause != _OFFLOADED)
    on_npu = [name for part in placement.npu for name in part]
    return Verdict(
        model=name,
        where=where,
        scheme=scheme,
        input_shapes=shapes,
        nodes=Share(len(on_npu), len(compute)),
        macs=Share(sum(counts[name] or 0 for name in on_npu), sum(node.macs or 0 for node in compute)),
        uncounted=tuple(name for name in (*on_npu, *placement.cpu) if counts[name] is None),
        partitions=tuple(_partition(part) for part in placement.npu),
        cpu_nodes=compute,
        io_quantization=tuple(node.name for node in on_cpu if node.cause == _OFFLOADED),
        folded=len(placement.folded),
        added=len(placement.made_npu),
        precisions=_precisions(evidence),
        compile_seconds=evidence.compile_seconds,
        ddr=evidence.log.ddr,
        context_bytes=evidence.context_bytes,
        vtcm_mb=max((g.vtcm_mb or 0 for c in evidence.contexts for g in c.graphs), default=None),
        warnings=(
            *notes,
            *evidence.notes,
            *_warnings(model.graph, where, scheme, types, on_npu),
            *(_old_forms(model, on_npu) if where.soc else _wrong_forms(model.graph, where, on_npu)),
        ),
    )


def _with_unlisted(placement: Placement, graph: Graph, evidence: Evidence) -> Placement:
    """Older onnxruntimes do not list the fp16 nodes that they cast to run on the CPU: the provider refused
    them, and they are in no list. The releases that go with those write no trace."""
    if traces():
        return placement
    names = Names(graph, evidence.trace.tensor_of)
    refused = {names.original(node.name) for node in evidence.trace.unsupported}
    folded = tuple(name for name in placement.folded if name not in refused)
    cpu = (*placement.cpu, *(name for name in placement.folded if name in refused))
    return replace(placement, cpu=cpu, folded=folded)


def _precisions(evidence: Evidence) -> dict[str, int]:
    """How many compiled operators run in which precision, by the compiler's own word."""
    said = evidence.log.precision_of
    return dict(Counter(said.get(op.name, "unknown") for graph in evidence.trace.graphs for op in graph))


def _partition(names: tuple[str, ...]) -> Partition:
    return Partition(len(names), names[0] if names else "", names[-1] if names else "")


def _cpu_nodes(
    graph: Graph,
    where: Where,
    placement: Placement,
    evidence: Evidence,
    counts: Mapping[str, int | None],
) -> tuple[CpuNode, ...]:
    names = Names(graph, evidence.trace.tensor_of)
    reasons = {names.original(node.name): node.reason for node in evidence.trace.unsupported}
    holders = {inner.name: node for node in graph.nodes for body in node.bodies for inner in body.walk()}
    cuts = cutting_nodes(graph, placement)
    result = []
    for name in placement.cpu:
        node, holder = names.nodes[name], holders.get(name)
        if holder is not None and holder.name in placement.cpu:
            reason = f"It is inside the body of {holder.op} `{holder.name}`, which is on the CPU"
            advice = _advise(holder.op, holder.domain, reasons.get(holder.name, _LEFT_OUT), where)
        else:
            holder, reason = None, reasons.get(name, _LEFT_OUT)
            advice = _advise(node.op, node.domain, reason, where)
        inside = holder.name if holder else ""
        result.append(
            CpuNode(name, node.op, reason, advice.cause, advice.advice, counts[name], name in cuts, inside)
        )
    return (*result, *(_made_node(node, where, evidence) for node in placement.made_cpu))


def _made_node(node: AssignedNode, where: Where, evidence: Evidence) -> CpuNode:
    """A CPU node that is not the user's: it is listed all the same."""
    reason = next((n.reason for n in evidence.trace.unsupported if n.name == node.name), _LEFT_OUT)
    advice = _advise(node.op, node.domain, reason, where)
    label = f"{node.name or node.op} (made by ONNX Runtime)"
    return CpuNode(label, node.op, reason, advice.cause, advice.advice, None, cuts=False)


def _advise(op: str, domain: str, reason: str, where: Where) -> facts.Advice | Refusal:
    if where.soc is not None:
        return facts.advise(op, domain, reason, where.soc)
    return advise_on(where.backend.name, reason)


def _warnings(
    graph: Graph, where: Where, scheme: str, types: Mapping[str, TensorType], on_npu: list[str]
) -> list[str]:
    found: list[str] = []
    soc, title = where.soc, where.backend.title
    if soc is not None and scheme == "fp16" and not soc.float:
        found.append(
            f"{soc.chip} has no float arithmetic on its NPU: a float model has to be quantised for it"
        )
    if not on_npu:
        found.append(f"nothing of this model runs on {title}")
    if origins := _origins_of_dynamic(graph, types):
        shown = ", ".join(f"{node.op} `{node.name}`" for node in origins[:5])
        more = f" and {len(origins) - 5} more" if len(origins) > 5 else ""
        found.append(f"shapes stay dynamic although every input is fixed; they begin at {shown}{more}")
    if doubles := [
        n.name for n in graph.nodes if any(types[o].dtype == "float64" for o in n.outputs if o in types)
    ]:
        found.append(
            f"{len(doubles)} nodes compute in float64, which {title} does not have (first: `{doubles[0]}`)"
        )
    return found


def _old_forms(model: Model, on_npu: list[str]) -> list[str]:
    """Nodes on the NPU whose form, by the opset alone, the compiler is known to get wrong."""
    opset = model.opsets.get("ai.onnx", 0)
    old = {f.op: f for f in facts.faults() if f.before_opset is not None and opset < f.before_opset}
    nodes = {node.name: node for node in model.graph.walk()}
    counts = Counter(nodes[name].op for name in on_npu if nodes[name].op in old)
    return [
        f"{n} {op} nodes compute wrongly on the NPU: {old[op].form}. {old[op].note}"
        for op, n in counts.items()
    ]


def _wrong_forms(graph: Graph, where: Where, taken: list[str]) -> list[str]:
    """What a backend other than the NPU's took and is known to get wrong."""
    nodes = {node.name: node for node in graph.walk()}
    found = []
    for fault in backend_faults():
        name, _, value = fault.attribute.partition("=")
        count = sum(
            nodes[one].op == fault.op and nodes[one].attributes.get(name) == value.encode() for one in taken
        )
        if count and fault.backend == where.backend.name:
            found.append(
                f"{count} {fault.op} nodes with {fault.attribute} on {where.backend.title}: {fault.form}"
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
