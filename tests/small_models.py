"""Small ONNX models made for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def value(
    name: str, shape: list[int | str | None] | None, dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def conv_relu(batch: int | str | None = 1) -> onnx.ModelProto:
    """x[batch,3,16,16] → Conv 3×3 to 8 channels → Relu → y. 8·16·16·3·3·3 = 55296 MACs a sample."""
    weight = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    return model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        [value("x", [batch, 3, 16, 16])],
        [value("y", [batch, 8, 16, 16])],
        [constant("w", weight)],
    )


def cut_by_erf() -> onnx.ModelProto:
    """Two MatMuls with an Erf between them, which the NPU does not have: three pieces."""
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
            helper.make_node("Erf", ["a"], ["b"], name="the_erf"),
            helper.make_node("MatMul", ["b", "w"], ["c"], name="second"),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        [value("x", [4, 16])],
        [value("y", [4, 16])],
        [constant("w", weight)],
    )


def mostly_structure() -> onnx.ModelProto:
    """Many nodes, attributes and shape constants, hardly any weights: every byte matters."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", kernel_shape=[1, 1], group=1),
        helper.make_node("Reshape", ["a", "shape"], ["b"], name="reshape"),
        helper.make_node("Softmax", ["b"], ["c"], name="softmax", axis=-1),
        helper.make_node("Slice", ["c", "start", "end"], ["d"], name="slice"),
        helper.make_node("Erf", ["d"], ["e"], name="erf"),
        helper.make_node("ReduceMean", ["e"], ["f"], name="mean", axes=[1], keepdims=1),
        helper.make_node("Concat", ["f", "e"], ["y"], name="concat", axis=1),
    ]
    constants = [
        constant("w", np.full((2, 1, 1, 1), 0.5, np.float32)),
        constant("shape", np.array([2, 16])),
        constant("start", np.array([0, 0])),
        constant("end", np.array([2, 8])),
    ]
    return model(nodes, [value("x", [1, 1, 4, 4])], [value("y", [2, 9])], constants)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def external(
    proto: onnx.ModelProto, folder: Path, location: str = "weights.bin", *, write: int | None = None
) -> Path:
    """The model with its first initializer in ``location``; ``write`` bytes of it, all when None."""
    tensor = proto.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(len(raw)))):
        tensor.external_data.add(key=key, value=text)
    if write != 0:
        (folder / location).write_bytes(raw[:write])
    return save(proto, folder / "m.onnx")


def sparse(dense: np.ndarray, name: str, *, flat: bool) -> onnx.SparseTensorProto:
    """A sparse constant whose indices count elements (``flat``) or name each axis."""
    where = np.flatnonzero(dense) if flat else np.argwhere(dense)
    values = constant(name, dense[dense != 0])
    return helper.make_sparse_tensor(values, constant("", where.astype(np.int64)), dense.shape)


def with_functions() -> onnx.ModelProto:
    """x → Wave → Wave → y, where Wave calls Leak, with an attribute passed on and another left to default."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    leak = helper.make_function("local", "Leak", ["a"], ["b"], [leaky], opsets[:1], ["slope"])
    inner = helper.make_node("Leak", ["a"], ["mid"], domain="local", name="leak")
    inner.attribute.add(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    nodes = [inner, helper.make_node("Erf", ["mid"], ["b"], name="erf")]
    default = [helper.make_attribute("slope", 0.25)]
    wave = helper.make_function("local", "Wave", ["a"], ["b"], nodes, opsets, [], default)
    calls = [
        helper.make_node("Wave", ["x"], ["mid"], domain="local", name="first", slope=0.5),
        helper.make_node("Wave", ["mid"], ["y"], domain="local", name="second"),
    ]
    proto = model(calls, [value("x", [4, 16])], [value("y", [4, 16])])
    proto.opset_import.append(opsets[1])
    proto.functions.extend([leak, wave])
    return proto
