"""``check``: ask Qualcomm's compiler what of a model runs on the NPU, and why the rest does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hexport import facts, zoo
from hexport.backend.failures import BackendError
from hexport.backend.probe import Evidence, probe
from hexport.backend.requests import AssignedNode
from hexport.errors import UsageError
from hexport.model import Graph, Model, Node, TensorType, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.macs import macs
from hexport.model.scheme import scheme_of
from hexport.model.staging import stage
from hexport.observe.placement import Names, Placement, cutting_nodes, place
from hexport.observe.verdict import CpuNode, Partition, Share, Verdict, parse_percent
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.toolchain.kept_log import keep_logs

if TYPE_CHECKING:
    from hexport.backend.sample_files import Sample
    from hexport.observe.comparing import Outputs

# The cause that facts/advice.toml gives to Q/DQ which the provider leaves to the CPU on purpose.
_OFFLOADED = "io-quantization-offloaded"
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
    evidence = _ask(source, shapes, soc, (), limits, native_log)
    found = scheme_of(source.graph, evidence.types)
    _refuse_other_scheme(scheme, found)
    return make_verdict(str(model), source, soc, found, shapes, evidence, notes)


def check_and_run(
    path: Path, soc: facts.Soc, samples: Sequence[Sample], *, limits: Limits | None = None
) -> tuple[Verdict, tuple[Outputs, ...]]:
    """The verdict on a model with fixed shapes, and what the NPU's own arithmetic gives for ``samples``.

    Both come from one session, because compiling can take minutes.
    """
    source = read(path)
    shapes = fix_shapes(source.graph, {}, {}, "")
    evidence = _ask(source, shapes, soc, samples, limits)
    scheme = scheme_of(source.graph, evidence.types)
    return make_verdict(str(path), source, soc, scheme, shapes, evidence, []), evidence.outputs


def _ask(
    source: Model,
    shapes: dict[str, Shape],
    soc: facts.Soc,
    samples: Sequence[Sample],
    limits: Limits | None,
    native_log: Path | None = None,
) -> Evidence:
    with temporary_folder() as workdir:
        try:
            return probe(stage(source, shapes, workdir), soc, workdir, samples=samples, limits=limits)
        except BackendError as error:
            raise explained(error, source.graph, soc) from error
        finally:
            if native_log is not None:
                keep_logs({"check": workdir / "native.log"}, native_log)


def explained(error: BackendError, graph: Graph, soc: facts.Soc) -> BackendError:
    """The same error, with what only this side knows: the chip has no float, and the model is float."""
    if not soc.float and scheme_of(graph, {}) == "fp16":
        error.why = f"{soc.chip} has no float arithmetic on its NPU, and the model is float\n{error.why}"
        error.next = "quantise the model (8a8w or 16a8w) for this chip, or choose a target with float"
    return error


def _zoo_shapes(model: str | Path, notes: list[str]) -> Mapping[str, Shape] | None:
    if not str(model).startswith("zoo:"):
        return None
    entry = zoo.entry(str(model).removeprefix("zoo:"))
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


def make_verdict(
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
    on_cpu = _cpu_nodes(model.graph, soc, placement, evidence, counts)
    compute = tuple(node for node in on_cpu if node.cause != _OFFLOADED)
    on_npu = [name for part in placement.npu for name in part]
    return Verdict(
        model=name,
        target=soc,
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
            *_warnings(model.graph, soc, scheme, types, on_npu),
            *_old_forms(model, on_npu),
        ),
    )


def _precisions(evidence: Evidence) -> dict[str, int]:
    """How many compiled operators run in which precision, by the compiler's own word."""
    said = evidence.log.precision_of
    return dict(Counter(said.get(op.name, "unknown") for graph in evidence.trace.graphs for op in graph))


def _partition(names: tuple[str, ...]) -> Partition:
    return Partition(len(names), names[0] if names else "", names[-1] if names else "")


def _cpu_nodes(
    graph: Graph,
    soc: facts.Soc,
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
            advice = facts.advise(holder.op, holder.domain, reasons.get(holder.name, _LEFT_OUT), soc)
        else:
            holder, reason = None, reasons.get(name, _LEFT_OUT)
            advice = facts.advise(node.op, node.domain, reason, soc)
        inside = holder.name if holder else ""
        result.append(
            CpuNode(name, node.op, reason, advice.cause, advice.advice, counts[name], name in cuts, inside)
        )
    return (*result, *(_made_node(node, soc, evidence) for node in placement.made_cpu))


def _made_node(node: AssignedNode, soc: facts.Soc, evidence: Evidence) -> CpuNode:
    """A CPU node that is not the user's: it is listed all the same."""
    reason = next((n.reason for n in evidence.trace.unsupported if n.name == node.name), _LEFT_OUT)
    advice = facts.advise(node.op, node.domain, reason, soc)
    label = f"{node.name or node.op} (made by ONNX Runtime)"
    return CpuNode(label, node.op, reason, advice.cause, advice.advice, None, cuts=False)


def _warnings(
    graph: Graph, soc: facts.Soc, scheme: str, types: Mapping[str, TensorType], on_npu: list[str]
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


def _origins_of_dynamic(graph: Graph, types: Mapping[str, TensorType]) -> list[Node]:
    """The nodes where fixed shapes go in and a dynamic one comes out."""
    return [
        node
        for node in graph.nodes
        if any(name in types and not types[name].is_static for name in node.outputs)
        and all(types[name].is_static for name in node.inputs if name in types)
    ]
