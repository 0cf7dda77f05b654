"""Scan becomes its body, once for each slice of what it scans: the backend has no Scan.

v, x ──► Scan(body) ─┬─► last v        v ──────────► body ──► body ──► … ──► body ──► last v
                     └─► all the s     x ──► Gather ──┘│s ─────┘│s ───────────┘│s
                                                       └────────┴── Unsqueeze ─┴─► Concat ──► all the s
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from hexport.rewrite.any_outputs import AnyOutputs
from hexport.rewrite.support.body_inlining import inlined, size_of, stacked
from hexport.rewrite.values import fixed_shape

_FIRST_WITHOUT_BATCHES = 9


class ScanUnrolled(AnyOutputs):
    cures: ClassVar[frozenset[str]] = frozenset({"Scan"})
    op_type: ClassVar[str] = "Scan"
    max_nodes: ClassVar[int] = 2048
    """The compiler's time grows faster than the number of nodes."""

    def why_not(self) -> str:
        if self.opset < _FIRST_WITHOUT_BATCHES:
            # Its first input is the batches' lengths, and every other input and output has a batch axis.
            return f"Scan before opset {_FIRST_WITHOUT_BATCHES} runs over batches"
        runs = self._runs()
        if runs is None:
            return "the length of what it scans is not fixed"
        if runs < 1:
            return "it never runs"
        body = self.node.attributes["body"].as_graph()
        if (made := runs * size_of(body)) > self.max_nodes:
            return f"{runs} runs would make {made} nodes, more than {self.max_nodes}"
        return ""

    def replace(self, op: Any) -> Sequence[ir.Value]:
        node, body, runs = self.node, self.node.attributes["body"].as_graph(), self._runs() or 0
        label = next(output.name for output in node.outputs if output.name) or "scan"
        carried = list(node.inputs[: self._states])
        columns: list[list[ir.Value]] = [[] for _ in body.outputs[self._states :]]
        for turn in range(runs):
            prefix = f"{node.name or label}/{turn}"
            slices = self._slices(prefix, turn, runs)
            results = inlined(body, [*(v for v in carried if v is not None), *slices], node, prefix)
            carried, rows = list(results[: self._states]), results[self._states :]
            for column, row in zip(columns, rows, strict=True):
                column.append(row)
        axes = self._numbers("scan_output_axes", len(columns))
        backwards = self._numbers("scan_output_directions", len(columns))
        return [
            *(op.Identity(value) for value in carried),
            *(
                stacked(op, rows[::-1] if back else rows, axis, self.opset, f"{label}.{i}")
                for i, (rows, axis, back) in enumerate(zip(columns, axes, backwards, strict=True))
            ),
        ]

    def _slices(self, prefix: str, turn: int, runs: int) -> list[ir.Value]:
        """What one run sees of each scanned input; made in the graph, before the run's own nodes."""
        made = []
        scanned = self.node.inputs[self._states :]
        axes = self._numbers("scan_input_axes", len(scanned))
        backwards = self._numbers("scan_input_directions", len(scanned))
        for i, (value, axis, back) in enumerate(zip(scanned, axes, backwards, strict=True)):
            index = np.array(runs - 1 - turn if back else turn, np.int64)
            where = ir.node("Constant", [], {"value": ir.tensor(index)}, name=f"{prefix}/index.{i}")
            take = ir.node("Gather", [value, where.outputs[0]], {"axis": axis}, name=f"{prefix}/slice.{i}")
            made += [where, take]
        graph = self.node.graph
        if graph is not None:
            graph.insert_before(self.node, made)
        return [node.outputs[0] for node in made[1::2]]

    @property
    def _states(self) -> int:
        scanned = self.node.attributes["num_scan_inputs"].as_int()
        return len(self.node.inputs) - scanned

    def _numbers(self, attribute: str, count: int) -> list[int]:
        return list(self.node.attributes.get_ints(attribute, [0] * count))

    def _runs(self) -> int | None:
        shape = fixed_shape(self.node.inputs[self._states])
        axis = self._numbers("scan_input_axes", 1)[0]
        return None if shape is None else shape[axis]
