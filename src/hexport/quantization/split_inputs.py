"""An input of the model that some read in integers and others in float, which the provider cannot feed.

x ──┬──► Q ──► DQ ──► …          x ──┬──► Cast(fp16) ──► Cast(fp32) ──► Q ──► DQ ──► …
    └──► float node                  └──► float node

It quantises an input before the graph, and then has two tensors where the compiled graph has one.
"""

from __future__ import annotations

import onnx_ir as ir

from hexport.rewrite.naming import names_in

_INTEGER = "QuantizeLinear"


def feed_split_inputs(model: ir.Model) -> None:
    """Put the casts where they are needed."""
    taken = set(names_in(model))
    for value in model.graph.inputs:
        quantizers = [(node, index) for node, index in value.uses() if node.op_type == _INTEGER]
        is_in_float = value.is_graph_output() or any(node.op_type != _INTEGER for node in value.consumers())
        if not quantizers or not is_in_float:
            continue
        there = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16})
        back = ir.node("Cast", [there.outputs[0]], {"to": ir.DataType.FLOAT})
        for cast, type_, label in ((there, ir.DataType.FLOAT16, "half"), (back, ir.DataType.FLOAT, "float")):
            name = f"{value.name}_{label}"
            while name in taken:
                name += "_"
            taken.add(name)
            made = cast.outputs[0]
            cast.name = made.name = name
            made.shape, made.dtype = value.shape, type_
        model.graph.insert_before(model.graph[0], [there, back])
        for node, index in quantizers:
            node.replace_input_with(index, back.outputs[0])
