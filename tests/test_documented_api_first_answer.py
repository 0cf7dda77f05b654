"""The first answer of a session of the documented API beside the CPU's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import hexport.onnxruntime as onnxruntime
import small_models as small
from documented_sessions import ONES, partly_on_cpu, session
from hexport.onnxruntime.first_run import others_in

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.save(small.conv_relu(), tmp_path / "m.onnx")


def test_first_answer_that_is_wrong_is_mended(tmp_path: Path) -> None:
    """Softmax of numbers near 10,000, which fp16 has no steps for; random inputs do not show it."""
    node = helper.make_node("Softmax", ["x"], ["y"], name="softmax")
    proto = small.model([node], [small.value("x", [2, 4])], [small.value("y", [2, 4])])
    made = session(small.save(proto, tmp_path / "m.onnx"))
    feeds = {"x": np.array([[0, 1, 2, 3], [10000, 10001, 10002, 10003]], np.float32)}
    with (
        pytest.warns(onnxruntime.QnnWarning, match="prepared again"),
        pytest.warns(onnxruntime.CpuFallbackWarning, match="cannot hold its inputs in fp16"),
    ):
        got = made.run(None, feeds)[0]
    shifted = np.exp(feeds["x"] - feeds["x"].max(axis=1, keepdims=True))
    expected = shifted / shifted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected, atol=1e-3)
    np.testing.assert_allclose(made.run(["y"], feeds)[0], expected, atol=1e-3)


def test_first_answer_that_nothing_mends_is_the_cpus(tmp_path: Path) -> None:
    """The NPU takes an infinity for NaN, and nothing is prepared on either."""
    node = helper.make_node("IsNaN", ["x"], ["y"], name="isnan")
    result = helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [4])
    made = session(small.save(small.model([node], [small.value("x", [4])], [result]), tmp_path / "m.onnx"))
    feeds = {"x": np.array([0, np.nan, 1, np.inf], np.float32)}
    with (
        pytest.warns(onnxruntime.QnnWarning, match="prepared again"),
        pytest.warns(onnxruntime.CpuFallbackWarning, match=r"on the CPU now\n.*holds nan at \[1\]"),
    ):
        assert made.run(None, feeds)[0].tolist() == [False, True, False, False]
    assert made.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("want", "have", "wrong"),
    [
        ([1.0, -np.inf], [1.0, -65504.0], True),
        ([1.0, 2.0], [1.0, np.inf], True),
        ([np.nan, -np.inf], [np.nan, -np.inf], False),
        (list(range(200)), [7, *range(1, 200)], False),
        (list(range(6)), [7, *range(1, 6)], True),
    ],
)
def test_what_decibels_do_not_tell(want: list[float], have: list[float], wrong: bool) -> None:
    assert bool(others_in("y", np.array(want), np.array(have))) == wrong


def test_first_answer_of_a_file_that_changed_is_not_compared(model: Path) -> None:
    made = session(model)
    small.save(partly_on_cpu(), model)
    with pytest.warns(onnxruntime.QnnWarning, match="any more"):
        assert made.run(None, ONES)[0].shape == (1, 8, 16, 16)
