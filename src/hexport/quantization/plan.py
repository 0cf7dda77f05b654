"""The plan: which node computes in which precision. Everything else follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from hexport import facts
from hexport.quantization.encoding import QType
from hexport.quantization.front_ends import REASON, front_ends
from hexport.quantization.roles import Role, kind_of, role_of, weight_of
from hexport.rewrite.values import fixed_shape


@dataclass(frozen=True)
class Precision:
    """Of one node. No activation type: it computes in float, which is fp16 on the NPU."""

    activation: QType | None = None
    weight: QType | None = None
    block: int = 0
    """Elements of a weight that share a scale; 0 for a scale a channel."""

    def __str__(self) -> str:
        if self.activation is None:
            return "fp16"
        weight = f"{self.weight.bits}w" if self.weight else ""
        return f"{self.activation.bits}a{weight}{'_block' if self.block else ''}"


FLOAT = Precision()
_BLOCK = 32

SCHEMES: Mapping[str, Precision] = {
    "fp16": FLOAT,
    "8a8w": Precision(QType.U8, QType.S8),
    "16a8w": Precision(QType.U16, QType.S8),
    "16a16w": Precision(QType.U16, QType.S16),
    "16a4w": Precision(QType.U16, QType.S4),
    "16a4w_block": Precision(QType.U16, QType.S4, _BLOCK),
}


@dataclass
class Plan:
    """Every node's precision, by the node's name, and why where it is not the scheme's own."""

    precisions: dict[str, Precision] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Nodes that stay as they are set, even if they only move numbers."""

    def of(self, node: ir.Node) -> Precision:
        return self.precisions.get(str(node.name), FLOAT)

    def set(self, name: str, precision: Precision, reason: str) -> None:
        self.precisions[name] = precision
        self.reasons[name] = reason

    def keep(self, name: str, precision: Precision, reason: str) -> None:
        """Set for good: not even ``settle_moving`` changes it."""
        self.set(name, precision, reason)
        self.kept.add(name)

    def copy(self) -> Plan:
        return Plan(dict(self.precisions), dict(self.reasons), set(self.kept))


def plan_for(model: ir.Model, scheme: Precision, arch: int) -> Plan:
    """Every node that can be in integers has the scheme; the rest stays float, with the reason."""
    plan = Plan()
    spared = front_ends(model)
    for node in model.graph:
        known = kind_of(node)
        if scheme.activation is None:
            plan.precisions[str(node.name)] = FLOAT
        elif str(node.name) in spared:
            plan.set(str(node.name), FLOAT, REASON)
        elif known is None:
            if _is_float_work(node):
                plan.set(str(node.name), FLOAT, f"the NPU has no integer {node.op_type}")
        else:
            weight = scheme.weight if weight_of(node) is not None else None
            block = scheme.block if weight is not None and takes_blocks(node, scheme.block) else 0
            precision = Precision(scheme.activation, weight, block)
            if why := refusal(node, precision, arch):
                plan.set(str(node.name), FLOAT, why)
            else:
                plan.precisions[str(node.name)] = precision
    settle_moving(model, plan)
    return plan


def refusal(node: ir.Node, precision: Precision, arch: int) -> str:
    """Why the node must not be in this precision on generation ``arch``; empty when it may."""
    if precision.activation is None:
        return ""
    name = precision.activation.name.lower()
    if precision.weight is not None:
        name += f"/{precision.weight.name.lower()}"
    first = node.inputs[0] if node.inputs else None
    rank = len(first.shape) if first is not None and first.shape is not None else 0
    attributes = {key: attribute.value for key, attribute in node.attributes.items()}
    return facts.integer_refusal(
        node.op_type, name, arch=arch, rank=rank, inputs=len(node.inputs), attributes=attributes
    )


def fitting(precision: Precision, *, has_weights: bool) -> Precision:
    """The precision for a node that may have no weights."""
    return precision if has_weights else _plain(precision)


def takes_blocks(node: ir.Node, block: int) -> bool:
    """Whether the NPU takes the weights in blocks: whole ones, of a matrix or a convolution that is one."""
    weight = weight_of(node)
    shape = fixed_shape(node.inputs[weight.index]) if weight is not None else None
    if weight is None or shape is None or not block or shape[weight.rows] % block:
        return False
    return node.op_type in ("MatMul", "Gemm") or (node.op_type == "Conv" and set(shape[2:]) == {1})


def settle_moving(model: ir.Model, plan: Plan) -> None:
    """What only moves numbers is as precise as what made them: a change of type there gains nothing.

    What moves a graph's input is as its readers are. What is kept, by the user's word or for a reason of its
    own, stays.
    """
    nodes = [node for node in model.graph if str(node.name) not in plan.kept]
    for node in reversed(nodes):
        if _moves(node) and data_producer(node) is None:
            readers = [plan.of(r) for r in final_readers(node)]
            if readers:
                plan.precisions[str(node.name)] = _plain(readers[0])
    for node in nodes:
        producer = data_producer(node) if _moves(node) else None
        if producer is not None:
            plan.precisions[str(node.name)] = _plain(plan.of(producer))


def final_readers(node: ir.Node) -> list[ir.Node]:
    """The integer operators that compute with what the node moves, through others that move it on."""
    found: list[ir.Node] = []
    for reader in users(node.outputs):
        if _moves(reader):
            found += final_readers(reader)
        elif kind_of(reader) is not None:
            found.append(reader)
    return found


def data_producer(node: ir.Node) -> ir.Node | None:
    """The node that makes the first data input; None for inputs of the graph and constants."""
    for index, value in enumerate(node.inputs):
        if value is not None and role_of(node, index) is Role.DATA:
            producer = value.producer()
            if producer is not None and producer.op_type != "Constant":
                return producer
    return None


def users(values: Iterable[ir.Value]) -> list[ir.Node]:
    """The nodes that read any of ``values``."""
    return [node for value in values for node, _ in value.uses()]


def _plain(precision: Precision) -> Precision:
    return Precision(precision.activation)


def _moves(node: ir.Node) -> bool:
    known = kind_of(node)
    return known is not None and known.kind == "moving"


def _is_float_work(node: ir.Node) -> bool:
    return any(value.dtype == ir.DataType.FLOAT for value in node.outputs)
