"""A model before it is quantised: float16 inside becomes float32, and its weights are constants again."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from hexport.quantization.fitting_model import fit_for_integers
from hexport.quantization.weights import layers_of
from quantised_graphs import cnn
from rule_checks import cpu


def in_half(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As ONNX Runtime writes it where the CPU has no float16: weights stay, and are cast before use."""
    nodes: list[onnx.NodeProto] = []
    names = {}
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
            names[tensor.name] = f"{tensor.name}_wide"
            nodes.append(
                helper.make_node("Cast", [tensor.name], [names[tensor.name]], to=int(TensorProto.FLOAT))
            )
    (x,), (y,) = proto.graph.input, proto.graph.output
    nodes.append(helper.make_node("Cast", [x.name], ["x_wide"], to=int(TensorProto.FLOAT)))
    names[x.name] = "x_wide"
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = ["y_wide" if name == y.name else name for name in node.output]
        nodes.append(node)
    nodes.append(helper.make_node("Cast", ["y_wide"], [y.name], to=int(TensorProto.FLOAT16)))
    for value in (x, y):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    graph = helper.make_graph(nodes, "half", [x], [y], list(proto.graph.initializer))
    return helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)


def test_weights_behind_a_cast_are_constants_again() -> None:
    before = in_half(cnn(17))
    model = ir.from_proto(before)
    assert not layers_of(model)
    fit_for_integers(model)
    assert len(layers_of(model)) == len(layers_of(ir.from_proto(cnn(17))))
    after = ir.to_proto(model)
    assert [v.type.tensor_type.elem_type for v in (*after.graph.input, *after.graph.output)] == [
        TensorProto.FLOAT16
    ] * 2
    shape = [d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim]
    feeds = {before.graph.input[0].name: np.random.default_rng(0).normal(size=shape).astype(np.float16)}
    (old,), (new,) = cpu(before, feeds), cpu(after, feeds)
    assert new.dtype == np.float16
    np.testing.assert_allclose(new.astype(np.float32), old.astype(np.float32), rtol=2e-3, atol=2e-3)
