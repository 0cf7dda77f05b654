"""A bias among shared integers: its numbers go with the weights, its scale with all that its layer reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import small_models as small
from hexport.building.sharing import adopt
from hexport.model.reference import cpu_session

WEIGHTS = np.random.default_rng(1).integers(-120, 120, (16, 8), dtype=np.int8)
SCALE = np.linspace(0.01, 0.02, 16, dtype=np.float32)
BIAS = np.random.default_rng(2).normal(0, 2, 16)


def layer(path: Path, input_scale: float, weights: np.ndarray, bias: np.ndarray) -> Path:
    """x -> Gemm, as the quantiser writes it: beside 16 bits a bias is a multiple of 256."""
    product = (np.float32(input_scale) * SCALE).astype(np.float32)
    constants = {
        "x_scale": np.float32(input_scale), "x_zero": np.uint16(32768),
        "w": weights, "w_scale": SCALE, "w_zero": np.zeros(16, np.int8),
        "b": 256 * np.rint(bias / product / 256).astype(np.int32),
        "b_scale": product, "b_zero": np.zeros(16, np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["x_q"], name="x_q"),
        helper.make_node("DequantizeLinear", ["x_q", "x_scale", "x_zero"], ["x_dq"], name="x_dq"),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["w_dq"], name="w_dq", axis=0),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["b_dq"], name="b_dq", axis=0),
        helper.make_node("Gemm", ["x_dq", "w_dq", "b_dq"], ["y"], name="gemm", transB=1),
    ]
    stored = [small.constant(name, np.asarray(array)) for name, array in constants.items()]
    made = small.model(nodes, [small.value("x", [1, 8])], [small.value("y", [1, 16])], stored, opset=21)
    return small.save(made, path)


def constants(path: Path) -> dict[str, list[np.ndarray]]:
    """Node -> the constants it reads."""
    graph = onnx.load(path).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {node.name: [stored[name] for name in node.input if name in stored] for node in graph.node}


def run(path: Path, x: np.ndarray) -> np.ndarray:
    (result,) = cpu_session(path, optimize=False).run(None, {"x": x})
    assert isinstance(result, np.ndarray)
    return result


def test_a_bias_goes_with_the_weights_it_was_corrected_for(tmp_path: Path) -> None:
    other = WEIGHTS.copy()
    other[:, 0] += 1
    large = layer(tmp_path / "large.onnx", 1e-4, WEIGHTS, BIAS)
    # Corrected by thousands of its own steps, which are little beside those of the weights.
    little = layer(tmp_path / "little.onnx", 0.7e-4, other, BIAS + 0.01)
    assert adopt(little, large, tmp_path / "adopted.onnx") == 0
    adopted, settled = constants(tmp_path / "adopted.onnx"), constants(large)
    for name, expected in settled.items():
        assert [a.tobytes() for a in adopted[name]] == [a.tobytes() for a in expected], name


def test_where_a_layer_keeps_its_weights_its_bias_is_written_for_the_shared_range(tmp_path: Path) -> None:
    other = WEIGHTS[::-1].copy()
    large = layer(tmp_path / "large.onnx", 1e-4, WEIGHTS, BIAS)
    little = layer(tmp_path / "little.onnx", 0.7e-4, other, BIAS[::-1])
    assert adopt(little, large, tmp_path / "adopted.onnx") == WEIGHTS.nbytes + 16 * 4
    adopted = constants(tmp_path / "adopted.onnx")
    assert adopted["x_dq"][0] == np.float32(1e-4)
    np.testing.assert_array_equal(adopted["w_dq"][0], other)
    np.testing.assert_array_equal(adopted["b_dq"][1], np.float32(1e-4) * SCALE)
    assert not np.any(adopted["b_dq"][0] % 256)
    x = np.random.default_rng(3).uniform(-2, 2, (1, 8)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "adopted.onnx", x), run(little, x), atol=2e-3)


def test_another_bias_beside_the_same_weights_stays(tmp_path: Path) -> None:
    large = layer(tmp_path / "large.onnx", 1e-4, WEIGHTS, BIAS)
    little = layer(tmp_path / "little.onnx", 1e-4, WEIGHTS, BIAS + 50)
    assert adopt(little, large, tmp_path / "adopted.onnx") == 16 * 4
    adopted = constants(tmp_path / "adopted.onnx")
    np.testing.assert_array_equal(adopted["b_dq"][0], constants(little)["b_dq"][0])


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_bias_at_a_scale_of_its_own_is_no_bias_of_products(tmp_path: Path, factor: float) -> None:
    """As a model may have it that came quantised: it is judged like any constant."""
    large = layer(tmp_path / "large.onnx", 1e-4, WEIGHTS, BIAS)
    proto = onnx.load(large)
    scale = next(tensor for tensor in proto.graph.initializer if tensor.name == "b_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), "b_scale"))
    little = small.save(proto, tmp_path / "little.onnx")
    adopt(little, large, tmp_path / "adopted.onnx")
    np.testing.assert_array_equal(
        constants(tmp_path / "adopted.onnx")["b_dq"][1], constants(little)["b_dq"][1]
    )
