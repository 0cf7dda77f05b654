"""Weights as floats: the same results, and one matrix instead of one a reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexport.model.reference import cpu_session
from hexport.quantization.weights_as_floats import weights_as_floats


def steps(count: int, scales: np.ndarray, axis: int) -> ir.Model:
    """x -> x·W -> … with one DequantizeLinear of the same W a step."""
    nodes, before = [], "x"
    for step in range(count):
        nodes += [
            helper.make_node("DequantizeLinear", ["w", f"s{step}", "z"], [f"w{step}"], axis=axis),
            helper.make_node("MatMul", [before, f"w{step}"], [f"y{step}"]),
        ]
        before = f"y{step}"
    weights = np.random.default_rng(3).integers(-127, 127, (8, 8), dtype=np.int8)
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(np.zeros(scales.shape, np.int8), "z"),
        *(numpy_helper.from_array(scales, f"s{step}") for step in range(count)),
    ]
    graph = helper.make_graph(
        nodes,
        "steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, [2, 8])],
        constants,
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def answer(model: ir.Model, path: Path) -> np.ndarray:
    ir.save(model, path)
    x = np.random.default_rng(5).normal(size=(2, 8)).astype(np.float32)
    (result,) = cpu_session(path, optimize=False).run(None, {"x": x})
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("scales", "axis"),
    [
        (np.float32(0.013), 1),
        (np.linspace(0.01, 0.02, 8, dtype=np.float32), 1),
        (np.linspace(0.01, 0.02, 8, dtype=np.float32), 0),
    ],
)
def test_the_results_are_the_same_to_the_bit(
    tmp_path: Path, scales: np.ndarray, axis: int, count: int
) -> None:
    model = steps(count, np.asarray(scales), axis)
    before, bytes_before = answer(model, tmp_path / "a.onnx"), ir.to_proto(model).SerializeToString()
    with weights_as_floats(model):
        assert sum(node.op_type == "DequantizeLinear" for node in model.graph) == 0
        after = answer(model, tmp_path / "b.onnx")
    np.testing.assert_array_equal(before, after)
    assert ir.to_proto(model).SerializeToString() == bytes_before, "afterwards it is as it was"


def test_it_is_as_it_was_also_after_a_failure() -> None:
    model = steps(3, np.asarray(np.float32(0.01)), 1)
    before = ir.to_proto(model).SerializeToString()
    with pytest.raises(OSError, match="full"), weights_as_floats(model):
        raise OSError("the disk is full")
    assert ir.to_proto(model).SerializeToString() == before
