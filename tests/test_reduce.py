"""From a failing model to its smallest failing piece: the search, the cuts, and real failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import failing_models as failing
import small_models as small
from hexport.backend.failures import CompileFailed, RunFailed
from hexport.faultfinding.recording import record, save_sample
from hexport.faultfinding.reduce import DoesNotFail, Step, reduce_model
from hexport.faultfinding.search import smallest_failing
from hexport.faultfinding.symptoms import Stage, signature
from hexport.faultfinding.verb import debug_reduce
from hexport.toolchain import WorkerCrashed
from small_models import save


@given(st.integers(1, 40), st.data())
def test_the_search_finds_exactly_what_is_needed(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    asked: list[tuple[int, ...]] = []

    def fails(items: tuple[int, ...]) -> bool:
        asked.append(items)
        return needed <= set(items)

    found = smallest_failing(range(count), fails)
    assert found.items == tuple(sorted(needed))
    assert found.minimal
    assert len(asked) == len(set(asked)) == found.tried


@given(st.integers(1, 12), st.sets(st.frozensets(st.integers(0, 11))))
def test_the_search_ends_at_a_minimum_whatever_fails(count: int, failing_sets: set[frozenset[int]]) -> None:
    whole = tuple(range(count))

    def fails(items: tuple[int, ...]) -> bool:
        return items == whole or frozenset(items) in failing_sets

    items = smallest_failing(whole, fails).items
    assert fails(items)
    smaller = [items[:i] + items[i + 1 :] for i in range(len(items))]
    assert not any(fails(part) for part in smaller if part)


def test_the_search_keeps_the_best_when_time_is_up() -> None:
    answers = iter([False, False, True])
    found = smallest_failing(range(64), lambda items: 5 in items, out_of_time=lambda: next(answers))
    assert found.items == tuple(range(16))
    assert not found.minimal
    assert found.tried == 2


def with_ops(*ops: str) -> Callable[[ir.Model], bool]:
    """Fails when it has all of these operators, and can be run at all."""

    def fails(model: ir.Model) -> bool:
        proto = ir.to_proto(model)
        onnx.checker.check_model(proto, full_check=True)
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        assert session.get_outputs()
        return set(ops) <= {node.op_type for node in proto.graph.node}

    return fails


def branching() -> ir.Model:
    """An If whose branches look at tensors of the main graph, with a Constant and shapes behind it."""

    def branch(name: str, op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["a", "factor"], [name])
        return helper.make_graph([node], name, [], [small.value(name, None)])

    nodes = [
        helper.make_node("Constant", [], ["factor"], value_float=2.0),
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0, name="top"),
        helper.make_node("Greater", ["top", "factor"], ["big"], name="big"),
        helper.make_node(
            "If", ["big"], ["b"], then_branch=branch("t", "Mul"), else_branch=branch("e", "Add"), name="if"
        ),
        helper.make_node("Shape", ["a"], ["s"], name="shape"),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=1, name="count"),
        helper.make_node("Reshape", ["b", "n"], ["flat"], name="reshape"),
        helper.make_node("Softmax", ["flat"], ["y"], name="softmax"),
    ]
    outputs = [small.value("y", [24]), small.value("a", [2, 3, 4])]
    return ir.from_proto(small.model(nodes, [small.value("x", [2, 3, 4])], outputs))


@pytest.mark.parametrize(
    ("ops", "nodes", "inputs", "outputs"),
    [
        (("If",), ["if"], {"big": (), "a": (2, 3, 4)}, ["b"]),
        (("Reshape",), ["reshape"], {"b": (2, 3, 4)}, ["flat"]),
        (("Relu", "Softmax"), ["relu", "softmax"], {"x": (2, 3, 4), "flat": (24,)}, ["a", "y"]),
    ],
    ids=["a body that looks outside", "shape arithmetic is kept", "two nodes far apart"],
)
def test_cuts(ops: tuple[str, ...], nodes: list[str], inputs: dict[str, object], outputs: list[str]) -> None:
    model = branching()
    before = ir.to_proto(model).SerializeToString()
    steps: list[Step] = []
    found = reduce_model(model, with_ops(*ops), progress=steps.append)
    assert [node.name for node in found.nodes] == nodes
    assert found.minimal
    assert found.of == 8
    assert {v.name: tuple(v.shape.numpy()) for v in found.model.graph.inputs} == inputs  # type: ignore[union-attr]
    assert [v.name for v in found.model.graph.outputs] == outputs
    assert steps[0].nodes == steps[0].of == 8
    assert ir.to_proto(model).SerializeToString() == before


def test_the_constant_in_place_of_shape_arithmetic_is_right() -> None:
    found = reduce_model(branching(), with_ops("Reshape"))
    (shape,) = found.model.graph.initializers.values()
    assert shape.const_value is not None
    np.testing.assert_array_equal(shape.const_value.numpy(), [2 * 3 * 4])


def test_a_model_that_does_not_fail_is_refused() -> None:
    with pytest.raises(DoesNotFail):
        reduce_model(branching(), lambda _: False)


def test_without_time_the_model_comes_back_as_it_is() -> None:
    model = branching()
    found = reduce_model(model, with_ops("If"), seconds=0)
    assert len(found.nodes) == found.of == 8
    assert not found.minimal
    assert ir.to_proto(found.model) == ir.to_proto(model)


def test_errors_of_the_predicate_come_out() -> None:
    def fails(_: ir.Model) -> bool:
        raise RuntimeError("the question itself is wrong")

    with pytest.raises(RuntimeError, match="the question itself"):
        reduce_model(branching(), fails, confirmed=True)


def test_a_recording_has_what_the_cpu_computed(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    model = branching()
    recording = record(model, {"x": x}, tmp_path)
    values = {v.name: v for node in model.graph for v in node.outputs}
    got = recording.of([values["a"], values["big"], values["s"]])
    np.testing.assert_array_equal(got["a"], np.maximum(x, 0))
    assert got["big"] == (x.max() > 2)
    np.testing.assert_array_equal(got["s"], [2, 3, 4])


@given(st.text(st.characters(exclude_characters="\0\\", codec="utf-8"), min_size=1, max_size=20))
def test_samples_of_any_name_are_saved(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.mktemp("samples") / "s.npz"
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    save_sample({name: array, "file": array[0]}, path)
    with np.load(path, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["file"], array[:1] if name != "file" else arrays["file"])
        np.testing.assert_array_equal(arrays[name][0], array if name != "file" else arrays["file"][0])


def test_the_same_failure_has_the_same_signature() -> None:
    said = "FAIL : Node '{}_token_{}' OpType:MaxPool. Error code: {}\n{}"
    one = CompileFailed("what", why=said.format("a", 1, 1002, "then this"))
    same = CompileFailed("what", why=said.format("b", 27, 1002, "then that"))
    assert signature(one) == signature(same)
    assert signature(one) != signature(CompileFailed("what", why=said.format("a", 1, 3110, "")))
    assert signature(one) != signature(CompileFailed("what", why="FAIL : something else, error code: 1002"))
    assert signature(one) != signature(RunFailed("what", why=one.why))
    assert signature(WorkerCrashed("SIGSEGV", why="a")) == signature(WorkerCrashed("SIGABRT", why="b"))


@pytest.mark.parametrize(
    ("make", "stage", "code", "op"),
    [
        (failing.killed_in_running, Stage.RUNNING, WorkerCrashed.code, "LpPool"),
        (failing.wrong_results, Stage.RESULTS, "", "Resize"),
    ],
    ids=["killed", "wrong"],
)
def test_real_failures(
    tmp_path: Path,
    make: Callable[[], onnx.ModelProto],
    stage: Stage,
    code: str,
    op: str,
) -> None:
    source = make()
    path, out = save(source, tmp_path / "m.onnx"), tmp_path / "small.onnx"
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1, 1, failing.CHANNELS, failing.SIZE, failing.SIZE)).astype(np.float32)
    np.savez(tmp_path / "real.npz", x=x)
    result = debug_reduce(path, output=out, target="SM8650", calib=tmp_path / "real.npz")
    assert result.failure is not None
    assert (result.failure.stage, result.failure.code) == (stage, code)
    assert [(node.name, node.op) for node in result.nodes] == [("culprit", op)]
    assert result.of == len(source.graph.node) > 30
    assert result.minimal
    assert result.notes == ()
    small_one = onnx.load(out)
    onnx.checker.check_model(small_one, full_check=True)
    assert [node.op_type for node in small_one.graph.node] == [op]
    assert result.samples == str(tmp_path / "small.npz")
    np.testing.assert_array_equal(np.load(result.samples)["before7"][0], tensor(source, "before7", x[0]))


def tensor(source: onnx.ModelProto, name: str, x: np.ndarray) -> np.ndarray:
    """What a tensor holds on the CPU."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(source)
    exposed.graph.output.append(helper.make_empty_tensor_value_info(name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (value,) = session.run([name], {"x": x})
    return np.asarray(value)


def test_types_of_pieces_follow_the_model(tmp_path: Path) -> None:
    """Cuts at tensors that are not float32."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64, name="cast"),
        helper.make_node("Gather", ["table", "i"], ["g"], name="gather"),
        helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT16, name="half"),
    ]
    table = small.constant("table", np.ones((5, 2), np.float32))
    model = small.model(
        nodes, [small.value("x", [3])], [small.value("y", [3, 2], TensorProto.FLOAT16)], [table]
    )
    found = reduce_model(ir.from_proto(model), with_ops("Gather"))
    (given_type,), (made,) = found.model.graph.inputs, found.model.graph.outputs
    assert given_type.dtype == ir.DataType.INT64
    assert made.dtype == ir.DataType.FLOAT
