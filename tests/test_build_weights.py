"""Several models beside one file of weights: each tensor is in it once, in whatever order of axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport import facts
from hexport.backend.running import run_on_cpu, run_on_htp
from hexport.building.assembling import FILE
from hexport.building.weights_file import write_models

SIZE = 160
"""160 · 160 numbers are just above what is worth a Transpose."""
Array = np.ndarray


def numbers(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) / 12).astype(np.float32)


def as_matmul(weights: Array) -> onnx.ModelProto:
    return small.model(
        [helper.make_node("MatMul", ["x", "w"], ["m"], name="m"), helper.make_node("Relu", ["m"], ["y"])],
        [small.value("x", [4, SIZE])],
        [small.value("y", [4, SIZE])],
        [small.constant("w", weights)],
    )


def as_gemm(weights: Array) -> onnx.ModelProto:
    """The same numbers out, with the matrix turned."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["m"], name="g", transB=1),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    proto = as_matmul(np.ascontiguousarray(weights.T))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def write(folder: Path, **protos: onnx.ModelProto) -> Path:
    """The models ``NAME.onnx`` in a new folder, as a package has them."""
    (folder / "plain").mkdir()
    (folder / "made").mkdir()
    paths = {
        f"{name}.onnx": small.save(proto, folder / "plain" / f"{name}.onnx") for name, proto in protos.items()
    }
    write_models(paths, folder / "made")
    return folder / "made"


def ops(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


def test_a_turned_matrix_is_stored_once_and_computes_the_same_bits(tmp_path: Path) -> None:
    weights = numbers(SIZE, SIZE)
    made = write(tmp_path, cpu=as_matmul(weights), bucket=as_gemm(weights))
    assert (made / FILE).read_bytes() == weights.tobytes()
    assert ops(made / "cpu.onnx") == ["MatMul", "Relu"]
    assert ops(made / "bucket.onnx") == ["Transpose", "Gemm", "Relu"]
    samples = [{"x": numbers(4, SIZE, seed=1)}]
    soc = facts.find_target("SM8650")
    plain, shared = (folder / "bucket.onnx" for folder in (tmp_path / "plain", made))
    on_cpu = [run_on_cpu(path, samples).outputs[0]["y"] for path in (plain, shared)]
    on_npu = [run_on_htp(path, samples, soc) for path in (plain, shared)]
    np.testing.assert_array_equal(*on_cpu)
    np.testing.assert_array_equal(*(results.outputs[0]["y"] for results in on_npu))
    np.testing.assert_allclose(on_cpu[0], np.maximum(samples[0]["x"] @ weights, 0), atol=1e-5)
    # The Transpose was computed before the NPU was asked for anything.
    asked = [[node.op for part in results.parts for node in part.nodes] for results in on_npu]
    assert asked[0] == asked[1]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_order_of_axes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    long = data.draw(st.lists(st.integers(2, 60), min_size=2, max_size=4))
    long[0] *= -(-20_000 // int(np.prod(long)))  # large enough to be looked for
    array = numbers(*long)
    axes = data.draw(st.permutations(range(len(long))))
    turned = np.ascontiguousarray(array.transpose(axes))
    wanted = data.draw(st.permutations([*range(len(long)), *[-1] * data.draw(st.integers(0, 2))]))
    # The long axes in their own order, with axes of one anywhere between.
    order = iter(turned.shape)
    shape = [1 if axis < 0 else next(order) for axis in wanted]
    turned = turned.reshape(shape)
    first, second = (_identity(one) for one in (array, turned))
    made = write(tmp_path_factory.mktemp("any"), first=first, second=second)
    assert (made / FILE).stat().st_size == array.nbytes
    graph = ir.load(made / "second.onnx").graph
    (stored,) = graph.initializers.values()
    assert stored.const_value is not None
    found = stored.const_value.numpy()
    if graph[0].op_type == "Transpose":
        found = found.transpose(graph[0].attributes["perm"].as_ints())
    np.testing.assert_array_equal(found, turned)
    onnx.checker.check_model(made / "second.onnx")


def _identity(weights: Array) -> onnx.ModelProto:
    shape = list(weights.shape)
    return small.model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="add")],
        [small.value("x", shape)],
        [small.value("y", shape)],
        [small.constant("w", weights)],
    )


def test_what_only_looks_alike_has_a_place_of_its_own(tmp_path: Path) -> None:
    weights = numbers(SIZE, SIZE)
    other = weights.T.copy()
    other[0, 0], other[0, 1] = other[0, 1], other[0, 0]  # the same numbers, and the same sum
    made = write(tmp_path, cpu=as_matmul(weights), bucket=as_matmul(other))
    assert (made / FILE).stat().st_size > 2 * weights.nbytes - 1
    assert ops(made / "bucket.onnx") == ["MatMul", "Relu"]
    assert onnx.load(made / "bucket.onnx").graph.initializer[0].raw_data == other.tobytes()


def test_a_constant_that_a_caller_sees_is_not_turned(tmp_path: Path) -> None:
    weights = numbers(SIZE, SIZE)
    given, taken = as_gemm(weights), as_gemm(weights)
    given.graph.output.append(small.value("w", [SIZE, SIZE]))
    taken.graph.input.append(small.value("w", [SIZE, SIZE]))  # a default, which a caller may replace
    made = write(tmp_path, cpu=as_matmul(weights), given=given, taken=taken)
    for name in ("given", "taken"):
        assert ops(made / f"{name}.onnx") == ["Gemm", "Relu"]
        assert onnx.load(made / f"{name}.onnx").graph.initializer[0].name == "w"


def test_models_with_bodies_stay_as_they_are(tmp_path: Path) -> None:
    weights = numbers(SIZE, SIZE)
    branch = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["z"], transB=1)], "branch", [], [small.value("z", [4, SIZE])]
    )
    proto = as_gemm(weights)
    del proto.graph.node[:]
    proto.graph.input.append(small.value("c", [], onnx.TensorProto.BOOL))
    proto.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch))
    made = write(tmp_path, cpu=as_matmul(weights), bucket=proto)
    assert ops(made / "bucket.onnx") == ["If"]
