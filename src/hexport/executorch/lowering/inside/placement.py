"""The lowered graph read back: what is a part for the NPU, what runs on the CPU, and why."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from math import prod
from typing import Any

from hexport.executorch.lowering.inside.asking import Answers
from hexport.executorch.lowering.inside.operators import op_name
from hexport.executorch.lowering.inside.programs import module_path
from hexport.executorch.pte.partition import CpuNode, Delegate, Partition

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<where>\S+)')
_GLUE = re.compile(r"^(quantized_decomposed|torchao)\.|^dim_order_ops\.|^aten\._to_copy\b|^aten\.clone\b")
_HIDDEN = ("site-packages/torch/", "<frozen", "<eval", "<string")
_ADVICE = (
    (re.compile(r"no builder for"), "write it with other operators in the module, or leave it on the CPU"),
    (
        re.compile(r"datatype|data type", re.IGNORECASE),
        "another scheme for this node may be accepted: an override",
    ),
    (re.compile(r"[Rr]ank|dimension"), "another shape may be accepted: reshape before it, at most 5 dims"),
    (re.compile(r"off the NPU"), ""),
)


def read_placement(exported: Any, lowered: Any, answers: Answers) -> Partition:
    """``exported``: the program with its delegates as nodes; ``lowered``: what is inside of these."""
    cpu: list[CpuNode] = []
    glue: Counter[str] = Counter()
    for node in exported.graph.nodes:
        if node.op != "call_function" or _is_delegate_call(node) or op_name(node) == "getitem":
            continue
        name = op_name(node)
        if _GLUE.search(name) and node.name not in answers.refused:
            glue[name] += 1
        else:
            cpu.append(_cpu_node(node, name, answers))
    return Partition(tuple(_delegate(name, module) for name, module in lowered), tuple(cpu), dict(glue))


def delegates(exported: Any) -> list[tuple[str, Any]]:
    """The parts for the NPU, in the order in which they run."""
    module = exported.graph_module
    names = [
        node.target
        for node in module.graph.nodes
        if node.op == "get_attr" and "lowered_module" in str(node.target)
    ]
    return [(str(name), getattr(module, name)) for name in names]


def _is_delegate_call(node: Any) -> bool:
    return "executorch_call_delegate" in str(node.target)


def _delegate(name: str, module: Any) -> Delegate:
    ops: Counter[str] = Counter()
    macs = 0
    for node in module.original_module.graph.nodes:
        if node.op != "call_function" or op_name(node) == "getitem" or _GLUE.search(op_name(node)):
            continue
        ops[op_name(node)] += 1
        macs += count_macs(node)
    return Delegate(name, sum(ops.values()), dict(ops), macs, len(module.processed_bytes))


def _cpu_node(node: Any, name: str, answers: Answers) -> CpuNode:
    reason = answers.refused.get(
        node.name, "its neighbours on both sides are on the CPU, or it was put in later"
    )
    advice = next((text for pattern, text in _ADVICE if pattern.search(reason)), "")
    return CpuNode(node.name, name, module_path(node), source_line(node), reason, advice, count_macs(node))


def source_line(node: Any) -> str:
    """The user's line that an operator comes from: the innermost that is not torch's own."""
    said = ""
    for frame in _FRAME.finditer(str(node.meta.get("stack_trace") or "")):
        if not any(part in frame["file"].replace("\\", "/") for part in _HIDDEN):
            # A program that somebody else saved names any file; only code is quoted.
            quotable = frame["file"].endswith(".py")
            text = linecache.getline(frame["file"], int(frame["line"])).strip() if quotable else ""
            said = f"{frame['file']}:{frame['line']}" + (f": {text}" if text else "")
    return said


def count_macs(node: Any) -> int:
    """Multiplications of convolutions, linear layers and products of matrices."""
    name = op_name(node).split(".")[1] if "." in op_name(node) else ""
    result = node.meta.get("val")
    if isinstance(result, (tuple, list)):
        result = result[0] if result else None
    if result is None or not hasattr(result, "shape"):
        return 0
    if name in ("convolution", "linear", "addmm"):
        weight = _shape(node.args[2 if name == "addmm" else 1])
        if weight is None:
            return 0
        if name == "addmm":
            return int(prod(result.shape)) * weight[0]
        if name == "convolution" and node.args[6]:  # transposed: every input number meets the whole kernel
            return prod(_shape(node.args[0]) or ()) * prod(weight[1:])
        return int(prod(result.shape)) * prod(weight[1:])
    if name in ("mm", "bmm", "matmul"):
        first = _shape(node.args[0])
        return int(prod(result.shape)) * first[-1] if first else 0
    return 0


def _shape(node: Any) -> tuple[int, ...] | None:
    value = getattr(node, "meta", {}).get("val")
    return tuple(value.shape) if value is not None and hasattr(value, "shape") else None
