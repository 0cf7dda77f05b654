"""Einsum becomes MatMul, Mul and ReduceSum: the backend takes only a few equations as they are.

a ──► Einsum ──► y          a ──► Transpose ──► Reshape [B,M,K] ──► MatMul ──► Reshape ──► Transpose ──► y
b ──────┘                   b ──► Transpose ──► Reshape [B,K,N] ──────┘

Labels that both operands and the output have are the batch B, those that only the operands share are
summed over: K. Where nothing is summed, it is a Mul with broadcasting. More than two operands are taken
from the left, two at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import onnx_ir as ir

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.pieces import reduce, reshape, transpose
from hexport.rewrite.support.einsum_equation import Equation, NotUnderstood, parse
from hexport.rewrite.values import fixed_shape, is_float


@dataclass(frozen=True)
class Term:
    """A value with one label an axis."""

    value: ir.Value
    labels: str
    sizes: dict[str, int]

    def shape(self, labels: str) -> list[int]:
        return [self.sizes[label] for label in labels]


class EinsumToMatMul(NodeRule):
    cures: ClassVar[frozenset[str]] = frozenset({"Einsum"})
    op_type: ClassVar[str] = "Einsum"

    def why_not(self) -> str:
        operands = self.node.inputs
        if any(fixed_shape(operand) is None for operand in operands):
            return "an operand's shape is not fixed"
        if not all(is_float(operand) for operand in operands):
            return "an operand is not known to be float"
        try:
            self._equation()
        except NotUnderstood as reason:
            return str(reason)
        return ""

    def replace(self, op: Any) -> Any:
        equation = self._equation()
        terms = []
        for value, labels in zip(self.node.inputs, equation.operands, strict=True):
            sizes = dict(zip(labels, fixed_shape(value) or (), strict=True))
            terms.append(Term(value, labels, sizes))  # type: ignore[arg-type]  # fixed_shape refused None
        result = terms[0]
        for i, term in enumerate(terms[1:], 1):
            later = set(equation.output).union(*(other.labels for other in terms[i + 1 :]))
            kept = "".join(dict.fromkeys(label for label in result.labels + term.labels if label in later))
            last = i == len(terms) - 1
            result = _contract(op, result, term, equation.output if last else kept, self.opset)
        result = _summed(op, result, equation.output, self.opset)
        ordered = _ordered(op, result, equation.output)
        return op.Identity(ordered) if ordered is self.node.inputs[0] else ordered

    def _equation(self) -> Equation:
        ranks = tuple(len(fixed_shape(operand) or ()) for operand in self.node.inputs)
        return parse(self.text_attribute("equation", ""), ranks)


def _contract(op: Any, a: Term, b: Term, output: str, opset: int) -> Term:
    # An axis of size 1 against a longer one is broadcast: it is as if the operand did not have it.
    a, b = _without_broadcast(op, a, b), _without_broadcast(op, b, a)
    a, b = _summed(op, a, output + b.labels, opset), _summed(op, b, output + a.labels, opset)
    sizes = {**a.sizes, **b.sizes}
    summed = [label for label in a.labels if label in b.labels and label not in output]
    if not summed:
        return _multiplied(op, a, b, output, sizes)
    batch = "".join(label for label in output if label in a.labels and label in b.labels)
    rows = "".join(label for label in a.labels if label not in b.labels)
    columns = "".join(label for label in b.labels if label not in a.labels)
    inner = "".join(summed)
    left = _grouped(op, a, batch, rows, inner)
    right = _grouped(op, b, batch, inner, columns)
    labels = batch + rows + columns
    value = reshape(op, op.MatMul(left, right), [sizes[label] for label in labels])
    return Term(value, labels, {label: sizes[label] for label in labels})


def _multiplied(op: Any, a: Term, b: Term, output: str, sizes: dict[str, int]) -> Term:
    spread = []
    for term in (a, b):
        own = "".join(label for label in output if label in term.labels)
        shape = [sizes[label] if label in own else 1 for label in output]
        value = _ordered(op, term, own)
        spread.append(value if own == output else reshape(op, value, shape))
    return Term(op.Mul(*spread), output, {label: sizes[label] for label in output})


def _without_broadcast(op: Any, term: Term, other: Term) -> Term:
    kept = "".join(x for x in term.labels if not (term.sizes[x] == 1 and other.sizes.get(x, 1) > 1))
    if kept == term.labels:
        return term
    sizes = {label: term.sizes[label] for label in kept}
    return Term(reshape(op, term.value, term.shape(kept)), kept, sizes)


def _summed(op: Any, term: Term, wanted: str, opset: int) -> Term:
    axes = [i for i, label in enumerate(term.labels) if label not in wanted]
    if not axes:
        return term
    kept = "".join(label for label in term.labels if label in wanted)
    value = reduce(op, "ReduceSum", term.value, axes, opset, keepdims=False)
    return Term(value, kept, {label: term.sizes[label] for label in kept})


def _ordered(op: Any, term: Term, labels: str) -> ir.Value:
    return transpose(op, term.value, [term.labels.index(label) for label in labels])


def _grouped(op: Any, term: Term, *groups: str) -> ir.Value:
    """The labels brought into the groups' order, and every group made one axis."""
    value = _ordered(op, term, "".join(groups))
    used = groups if groups[0] else groups[1:]
    return reshape(op, value, [prod(term.shape(group)) for group in used])
