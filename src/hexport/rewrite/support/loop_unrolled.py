"""Loop that runs a known number of times becomes its body, that many times over: the backend has no Loop.

n, true, v ──► Loop(body) ─┬─► last v         v ──► body ──► body ──► … ──► body ──► last v
                           └─► all the s              │s       │s             │s
                                                      └────────┴── Unsqueeze ─┴─► Concat ──► all the s
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.any_outputs import AnyOutputs
from hexport.rewrite.pinning import PIN
from hexport.rewrite.support.body_inlining import inlined, size_of, stacked
from hexport.rewrite.support.counting_runs import count_runs


class LoopUnrolled(AnyOutputs):
    cures: ClassVar[frozenset[str]] = frozenset({"Loop"})
    op_type: ClassVar[str] = "Loop"
    max_nodes: ClassVar[int] = 2048
    """The compiler's time grows faster than the number of nodes."""
    runs: int

    def why_not(self) -> str:
        if PIN in self.node.metadata_props:
            return f"it keeps a node on the CPU on purpose: {self.node.metadata_props[PIN]}"
        runs = count_runs(self.node, self.opset, self.max_nodes)
        if isinstance(runs, str):
            return runs
        if not runs:
            return "it never runs"
        if (made := runs * size_of(self.node.attributes["body"].as_graph())) > self.max_nodes:
            return f"{runs} runs would make {made} nodes, more than {self.max_nodes}"
        self.runs = runs
        return ""

    def replace(self, op: Any) -> Sequence[ir.Value]:
        body = self.node.attributes["body"].as_graph()
        label = next(output.name for output in self.node.outputs if output.name) or "loop"
        carried = [value for value in self.node.inputs[2:] if value is not None]
        true = op.initializer(ir.tensor(np.array(True)), name=f"{label}.true")
        columns: list[list[ir.Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
        for turn in range(self.runs):
            number = op.initializer(ir.tensor(np.array(turn, np.int64)), name=f"{label}.turn.{turn}")
            prefix = f"{self.node.name or label}/{turn}"
            _, *results = inlined(body, [number, true, *carried], self.node, prefix)
            carried, rows = results[: len(carried)], results[len(carried) :]
            for column, row in zip(columns, rows, strict=True):
                column.append(row)
        # A value may be carried through untouched: it keeps its name, and the output has its own.
        return [
            *(op.Identity(value) for value in carried),
            *(stacked(op, rows, 0, self.opset, f"{label}.{i}") for i, rows in enumerate(columns)),
        ]
