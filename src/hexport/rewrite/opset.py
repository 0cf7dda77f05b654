"""The version of ONNX's own operators that the graph of a match speaks."""

from __future__ import annotations

from onnxscript.rewriter import MatchContext


def opset_version(context: MatchContext) -> int:
    """A function's own imports come before the model's."""
    own = context.graph_or_function.opset_imports.get("")
    return int(own if own is not None else context.model.graph.opset_imports[""])
