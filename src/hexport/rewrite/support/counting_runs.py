"""How often a Loop runs, where numbers alone decide it: its end is computed without looking at data.

Keras writes a recurrence as ``while step < steps``: the condition is computed in the body, but of nothing
except a counter and a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from hexport.model.chance import BY_CHANCE
from hexport.rewrite.values import constant

_TURN, _GO, _STATES = 0, 1, 2
"""Where a body's inputs begin: the number of the run, whether it goes on, what is carried."""
Arrays = dict[str, NDArray[np.generic]]


def count_runs(loop: ir.Node, opset: int, most: int) -> int | str:
    """The number of runs, or why it is not known; more than ``most`` are not counted."""
    body = loop.attributes["body"].as_graph()
    limit, go = (constant(value) for value in loop.inputs[:_STATES])
    if loop.inputs[_TURN] is not None and limit is None:
        return "the number of runs is not constant"
    if loop.inputs[_GO] is not None and go is None:
        return f"whether it runs at all is computed (`{getattr(loop.inputs[_GO], 'name', '')}`)"
    counter = _Counter(loop, body)
    counter.needs(body.outputs[0])
    if counter.reason:
        return f"when it ends is computed in the loop (`{body.outputs[0].name}`){counter.reason}"
    begins, largest = go is None or bool(np.all(go)), None if limit is None else int(limit.reshape(()))
    try:
        return _counted(counter, opset, begins, largest, most)
    except Exception as error:  # noqa: BLE001 - ONNX's reference does not have every operator: left, and said
        return f"when it ends could not be computed: {type(error).__name__}: {error}"


def _counted(counter: _Counter, opset: int, going: bool, limit: int | None, most: int) -> int | str:
    turn, states, step = 0, counter.begin, counter.step(opset)
    while going and (limit is None or turn < limit):
        if turn == most:
            return f"it runs more than {most} times"
        going, states = step(turn, going, states)
        turn += 1
    return turn


class _Counter:
    """The part of a body that its condition is made of."""

    def __init__(self, loop: ir.Node, body: ir.Graph) -> None:
        self._loop, self._body = loop, body
        self._seen: set[ir.Value] = set()
        self._nodes: set[ir.Node] = set()
        self._constants: Arrays = {}
        self.begin: Arrays = {}
        """What is carried into the first run, by the body's names."""
        self.reason = ""

    def needs(self, value: ir.Value) -> None:
        """Take a value in, with all that it is made of."""
        waiting = [value]
        while waiting and not self.reason:
            value = waiting.pop()
            if value not in self._seen:
                self._seen.add(value)
                waiting += self._makers(value)

    def _makers(self, value: ir.Value) -> list[ir.Value]:
        name, array, node = str(value.name), constant(value), value.producer()
        if array is not None:
            self._constants[name] = array
            return []
        if value in self._body.inputs:
            place = list(self._body.inputs).index(value)
            return self._carried(name, place) if place >= _STATES else []
        if node is None or node.graph is not self._body:
            self.reason = f", from `{name}`"
        elif node.op_type in BY_CHANCE or any(
            a.type is ir.AttributeType.GRAPH for a in node.attributes.values()
        ):
            self.reason = f", by {node.op_type} `{node.name}`"
        else:
            self._nodes.add(node)
            return [read for read in node.inputs if read is not None]
        return []

    def _carried(self, name: str, place: int) -> list[ir.Value]:
        first = constant(self._loop.inputs[place])
        if first is None:
            self.reason = f", from `{getattr(self._loop.inputs[place], 'name', name)}`"
            return []
        self.begin[name] = first
        return [self._body.outputs[place - 1]]

    def step(self, opset: int) -> Any:
        """One run: from its number and what is carried, whether it goes on and what is carried then."""
        import onnx
        from onnx.reference import ReferenceEvaluator

        names = [str(value.name) for value in self._body.inputs]
        after = {
            name: str(self._body.outputs[place - 1].name) for place, name in enumerate(names) if place >= 1
        }
        outputs = [after[names[_GO]], *(after[name] for name in self.begin)]
        nodes = [ir.to_proto(node) for node in self._body if node in self._nodes]
        inputs = [*names[:_STATES], *self.begin]
        graph = onnx.helper.make_graph(
            nodes,
            "condition",
            [onnx.helper.make_empty_tensor_value_info(name) for name in inputs],
            [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(outputs)],
            [onnx.numpy_helper.from_array(array, name) for name, array in self._constants.items()],
        )
        proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        evaluator = ReferenceEvaluator(proto)

        def run(turn: int, going: bool, states: Mapping[str, NDArray[np.generic]]) -> tuple[bool, Arrays]:
            fed = {names[_TURN]: np.array(turn, np.int64), names[_GO]: np.array(going), **states}
            found = dict(zip(dict.fromkeys(outputs), evaluator.run(None, fed), strict=True))
            return bool(np.all(found[outputs[0]])), {name: found[after[name]] for name in self.begin}

        return run
