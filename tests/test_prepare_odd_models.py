"""Models that are legal but rare, or broken: each is prepared right, or refused with a clear reason."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport import HexportError, check
from hexport.errors import BadSamples
from hexport.model import ExternalDataMissing
from hexport.model.soundness import UnusableGraph
from hexport.preparation import cleaning, pipeline, saving, verb
from hexport.preparation.outcome import Preparation
from hexport.preparation.verb import prepare

TARGET = "SM8650"
X, Y = small.value("x", [2, 8]), small.value("y", [2, 8])
WEIGHT = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
SPARSE = np.where(np.abs(WEIGHT) > 1, WEIGHT, 0)


def node(op: str, inputs: str, outputs: str, **more: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **more)


def foreign(opsets: list[onnx.OperatorSetIdProto]) -> onnx.ModelProto:
    nodes = [node("Neg", "x", "a"), node("Frob", "a", "y", domain="com.example", name="frob")]
    proto = small.model(nodes, [X], [Y])
    proto.opset_import.extend(opsets)
    return proto


def of_type(number: int, **more: object) -> onnx.ModelProto:
    values = [small.value(name, [2, 8], number) for name in ("x", "y")]
    return small.model([node("Identity", "x", "y")], values[:1], values[1:], **more)  # type: ignore[arg-type]


def strange_constant() -> onnx.ModelProto:
    proto = small.model([node("Add", "x w", "y")], [X], [Y], [small.constant("w", WEIGHT[0])])
    proto.graph.initializer[0].data_type = 99
    return proto


def typed_input(kind: str) -> onnx.ModelProto:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 8])
    if kind == "sequence":
        info = helper.make_value_info("x", helper.make_sequence_type_proto(tensor))
        return small.model([node("ConcatFromSequence", "x", "y", axis=0)], [info], [Y])
    info = helper.make_value_info("x", helper.make_optional_type_proto(tensor))
    return small.model([node("OptionalGetElement", "x", "y")], [info], [Y], opset=18)


REFUSED = {
    "an input nobody makes": (
        small.model([node("Add", "x nowhere", "y", name="sum")], [X], [Y]),
        ["'nowhere'", "Add `sum`"],
    ),
    "an output nobody makes": (small.model([node("Relu", "x", "z")], [X], [Y]), ["'y'", "an output"]),
    "a tensor made twice": (
        small.model([node("Relu", "x", "y", name="r"), node("Abs", "x", "y", name="a")], [X], [Y]),
        ["'y'", "Relu `r`", "Abs `a`"],
    ),
    "an input made again": (
        small.model([node("Relu", "x", "x", name="r"), node("Abs", "x", "y")], [X], [Y]),
        ["'x'", "Relu `r`", "an input"],
    ),
    "an unknown type": (of_type(99), ["'x'", "type99"]),
    "a constant of unknown type": (strange_constant(), ["'w'", "type99"]),
    "a circle": (
        small.model([node("Add", "x b", "a", name="add"), node("Relu", "a", "b", name="relu")], [X], [Y]),
        [],
    ),
    "a foreign operator": (
        foreign([helper.make_opsetid("com.example", 1)]),
        ["com.example::Frob", "`frob`", "model-local function"],
    ),
    "a foreign operator not imported": (foreign([]), ["com.example::Frob"]),
    "no nodes": (small.model([], [X], [small.value("x", [2, 8])]), ["nothing to compute", "no nodes"]),
    "no inputs": (
        small.model([node("Relu", "w", "y")], [], [small.value("y", [8, 8])], [small.constant("w", WEIGHT)]),
        ["nothing to compute", "no inputs"],
    ),
    "no outputs": (small.model([node("Relu", "x", "y")], [X], []), ["no outputs"]),
    "a sequence": (typed_input("sequence"), ["'x'", "of type sequence"]),
    "an optional": (typed_input("optional"), ["'x'", "of type optional"]),
}
REFUSED["a circle"][0].graph.output[0].name = "b"
REFUSED["a circle"][1].extend(["circle", "`add`", "`relu`"])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_prepare_and_check_alike(name: str, tmp_path: Path) -> None:
    proto, says = REFUSED[name]
    path = small.save(proto, tmp_path / "m.onnx")
    for call in (
        lambda: prepare(path, output=tmp_path / "o.onnx", target=TARGET),
        lambda: check(path, target=TARGET),
    ):
        with pytest.raises(UnusableGraph) as caught:
            call()
        for words in says:
            assert words in str(caught.value)
        assert caught.value.next
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_text_as_input_is_refused(tmp_path: Path) -> None:
    path = small.save(of_type(TensorProto.STRING), tmp_path / "m.onnx")
    with pytest.raises(BadSamples, match="'x' is string"):
        prepare(path, output=tmp_path / "o.onnx", target=TARGET)


def test_what_the_cpu_cannot_run_cannot_be_proved(tmp_path: Path) -> None:
    path = small.save(small.model([node("Frobnicate", "x", "y")], [X], [Y]), tmp_path / "m.onnx")
    with pytest.raises(HexportError) as caught:
        prepare(path, output=tmp_path / "o.onnx", target=TARGET)
    assert caught.value.code == "HX505"
    assert "no change to it could be proved" in caught.value.what
    assert "Frobnicate" in caught.value.why


@pytest.mark.parametrize(
    ("location", "write", "says"),
    [
        ("weights.bin", 0, "it is not there"),
        ("weights.bin", 100, "it has 100 bytes, 256 are needed"),
        ("../weights.bin", None, "the model's own folder"),
    ],
    ids=["missing", "short", "escaping"],
)
def test_external_data_that_cannot_be_used(
    location: str, write: int | None, says: str, tmp_path: Path
) -> None:
    proto = small.model([node("MatMul", "x w", "y")], [X], [Y], [small.constant("w", WEIGHT)])
    (tmp_path / "in").mkdir()
    path = small.external(proto, tmp_path / "in", location, write=write)
    with pytest.raises(ExternalDataMissing) as caught:
        prepare(path, output=tmp_path / "o.onnx", target=TARGET)
    assert says in str(caught.value)
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.skipif(os.name == "nt", reason="links work otherwise there")
def test_external_data_with_a_second_name_is_refused(tmp_path: Path) -> None:
    proto = small.model([node("MatMul", "x w", "y")], [X], [Y], [small.constant("w", WEIGHT)])
    path = small.external(proto, tmp_path)
    (tmp_path / "second.bin").hardlink_to(tmp_path / "weights.bin")
    with pytest.raises(ExternalDataMissing, match="several hard links"):
        prepare(path, output=tmp_path / "o.onnx", target=TARGET)


# --- legal, and prepared


def prepared(path: Path, **options: object) -> Preparation:
    """Prepare it, and compare the result with the original, both on the CPU."""
    output = path.with_name("out.onnx")
    result = prepare(path, output=output, target=TARGET, **options)  # type: ignore[arg-type]
    old, new = (ort.InferenceSession(file, providers=["CPUExecutionProvider"]) for file in (path, output))
    assert [v.name for v in new.get_inputs()] == [v.name for v in old.get_inputs()]
    assert [(v.name, v.type) for v in new.get_outputs()] == [(v.name, v.type) for v in old.get_outputs()]
    rng = np.random.default_rng(3)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}
    feeds = {v.name: (4 * rng.normal(size=v.shape)).astype(kinds[v.type]) for v in old.get_inputs()}
    for expected, got in zip(old.run(None, feeds), new.run(None, feeds), strict=True):
        np.testing.assert_allclose(
            got, expected, rtol=2e-3 if expected.dtype == np.float16 else 1e-4, atol=1e-4
        )
    return result


def ops(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path, load_external_data=False).graph.node]


def test_functions_are_written_out(tmp_path: Path) -> None:
    path = small.save(small.with_functions(), tmp_path / "m.onnx")
    result = prepared(path)
    assert result.full
    assert result.before.verdict is not None
    assert {n.name for n in result.before.verdict.cpu_nodes} == {"first/erf", "second/erf"}
    (rule,) = [attempt for attempt in result.attempts if attempt.name == "ErfToTanh"]
    assert rule.kept
    assert set(rule.nodes) == {"first/erf", "second/erf"}


@pytest.fixture
def without_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked does not depend on the clean-up, which takes most of the time."""
    monkeypatch.setattr(cleaning, "STEPS", (("tidy", cleaning.tidy),))


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_constants_are_written_out(flat: bool, tmp_path: Path, without_cleaning: None) -> None:
    proto = small.model([node("MatMul", "x w", "y")], [X], [Y])
    proto.graph.sparse_initializer.append(small.sparse(SPARSE, "w", flat=flat))
    assert prepared(small.save(proto, tmp_path / "m.onnx")).full
    (weight,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), SPARSE)


def test_nodes_in_any_order(tmp_path: Path, without_cleaning: None) -> None:
    path = small.save(
        small.model([node("Relu", "a", "y"), node("Neg", "x", "a")], [X], [Y]), tmp_path / "m.onnx"
    )
    result = prepared(path)
    assert result.full
    assert all(attempt.kept for attempt in result.attempts)
    assert ops(tmp_path / "out.onnx") == ["Neg", "Relu"]


def test_outputs_that_are_inputs_or_constants(tmp_path: Path) -> None:
    outputs = [Y, X, small.value("w", [8])]
    proto = small.model([node("Add", "x w", "y")], [X], outputs, [small.constant("w", WEIGHT[0])])
    assert prepared(small.save(proto, tmp_path / "m.onnx")).full


def test_whole_numbers_only(tmp_path: Path) -> None:
    values = [small.value(name, [2, 8], TensorProto.INT32) for name in ("x", "y")]
    nodes = [node("Add", "x w", "a"), node("Mul", "a a", "y")]
    constants = [small.constant("w", np.arange(8, dtype=np.int32))]
    result = prepared(small.save(small.model(nodes, values[:1], values[1:], constants), tmp_path / "m.onnx"))
    assert result.full
    assert result.after.htp is not None
    assert result.after.htp.sqnr_db == np.inf
    assert result.to_json()["after"]["sqnr_db"] == "exact"  # type: ignore[index]


def test_float16_stays_float16(tmp_path: Path) -> None:
    values = [small.value(name, [2, 8], TensorProto.FLOAT16) for name in ("x", "y")]
    nodes = [node("MatMul", "x w", "a"), node("Erf", "a", "y", name="erf")]
    constants = [small.constant("w", WEIGHT.astype(np.float16))]
    result = prepared(small.save(small.model(nodes, values[:1], values[1:], constants), tmp_path / "m.onnx"))
    assert result.full
    assert {i.data_type for i in onnx.load(tmp_path / "out.onnx").graph.initializer} <= {TensorProto.FLOAT16}


def test_quantised_stays_quantised(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "xq"),
        node("DequantizeLinear", "xq s z", "xd"),
        node("DequantizeLinear", "wq s wz", "wd"),
        node("MatMul", "xd wd", "a"),
        node("QuantizeLinear", "a t z", "aq"),
        node("DequantizeLinear", "aq t z", "y"),
    ]
    constants = [
        small.constant("s", np.array(0.1, np.float32)),
        small.constant("t", np.array(0.3, np.float32)),
        small.constant("z", np.array(128, np.uint8)),
        small.constant("wz", np.array(0, np.int8)),
        small.constant("wq", np.round(WEIGHT / 0.1).clip(-127, 127).astype(np.int8)),
    ]
    result = prepared(small.save(small.model(nodes, [X], [Y], constants), tmp_path / "m.onnx"))
    assert result.after.verdict is not None
    assert result.after.verdict.scheme == "8a8w"
    assert sorted(ops(tmp_path / "out.onnx")) == sorted(n.op_type for n in nodes)
    assert result.dangers == ()


def test_defaults_and_chance_are_said(tmp_path: Path, without_cleaning: None) -> None:
    nodes = [
        node("Add", "x w", "a"),
        node("RandomNormalLike", "a", "r", name="dice"),
        node("Add", "a r", "y"),
    ]
    proto = small.model(nodes, [X, small.value("w", [8])], [Y], [small.constant("w", WEIGHT[0])])
    result = prepare(small.save(proto, tmp_path / "m.onnx"), output=tmp_path / "o.onnx", target=TARGET)
    said = "\n".join(result.warnings)
    assert "become constants of that value: w" in said
    assert "RandomNormalLike `dice`" in said


def test_prepared_twice_is_said_and_has_no_more_to_rewrite(tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    assert not any("prepared before" in warning for warning in prepared(path).warnings)
    again = prepare(tmp_path / "out.onnx", output=tmp_path / "again.onnx", target=TARGET)
    assert again.full
    assert any("it was prepared before, by hexport" in warning for warning in again.warnings)
    first, second = ([op for op in ops(tmp_path / f) if op != "Constant"] for f in ("out.onnx", "again.onnx"))
    assert second == first


# --- weights in files of their own


def test_small_external_data_comes_home(tmp_path: Path) -> None:
    proto = small.model([node("MatMul", "x w", "y")], [X], [Y], [small.constant("w", WEIGHT)])
    path = small.external(proto, tmp_path, "sub dir.bin")
    before = (tmp_path / "sub dir.bin").read_bytes()
    assert prepared(path).full
    assert (tmp_path / "sub dir.bin").read_bytes() == before
    assert {f.name for f in tmp_path.iterdir()} == {"m.onnx", "sub dir.bin", "out.onnx"}


def test_large_external_data_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way with weights in files, on a small model that counts as large."""
    for module in (saving, verb):
        monkeypatch.setattr(module, "LARGE", 100)
    monkeypatch.setattr(saving, "LEAST_OUTSIDE", 100)
    nodes = [node("MatMul", "x w", "a"), node("Erf", "a", "y", name="erf")]
    weight = np.tile(WEIGHT, 4)
    proto = small.model(nodes, [X], [small.value("y", [2, 32])], [small.constant("w", weight)])
    path = small.external(proto, tmp_path, "candidate1.onnx")
    before = (tmp_path / "candidate1.onnx").read_bytes()
    (tmp_path / "out.onnx.data").write_bytes(b"old")
    result = prepared(path)
    assert result.full
    assert result.data == "out.onnx.data"
    assert {a.name for a in result.attempts if a.kept} >= {"tidy", "ErfToTanh"}
    assert (tmp_path / "candidate1.onnx").read_bytes() == before
    assert weight.tobytes() in (tmp_path / "out.onnx.data").read_bytes()
    assert {f.name for f in tmp_path.iterdir()} == {"m.onnx", "candidate1.onnx", "out.onnx", "out.onnx.data"}


@pytest.mark.skipif(os.name == "nt", reason="a file with holes needs a file system that has them")
def test_two_gigabytes(tmp_path: Path, without_cleaning: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table over protobuf's limit, all zeros on the disk; the compiler takes minutes and is not asked."""
    for module in (pipeline, verb):
        monkeypatch.setattr(module, "stand", lambda *_: pipeline.Standing(None, None, None))
    rows = 2**25 + 1
    table = TensorProto(name="table", data_type=TensorProto.UINT64, dims=[rows, 8])
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    nodes = [node("Gather", "table i", "row"), node("Cast", "row", "z", to=1), node("Add", "z one", "y")]
    one = small.constant("one", np.array(1, np.float32))
    index, outcome = small.value("i", [4], TensorProto.INT64), small.value("y", [4, 8])
    path = small.save(small.model(nodes, [index], [outcome], [table, one]), tmp_path / "m.onnx")
    with (tmp_path / "table.bin").open("wb") as file:
        file.truncate(64 * rows)
    result = prepare(path, output=tmp_path / "out.onnx", target=TARGET, rules="PowToMul")
    data = tmp_path / "out.onnx.data"
    size, kept = data.stat().st_size, onnx.load(tmp_path / "out.onnx", load_external_data=False)
    for big in (data, tmp_path / "table.bin"):
        big.unlink()
    assert 64 * rows <= size < 64 * rows + 10_000
    assert [tuple(i.dims) for i in kept.graph.initializer if i.name == "table"] == [(rows, 8)]
    assert all(attempt.kept for attempt in result.attempts)
    assert {f.name for f in tmp_path.iterdir()} == {"m.onnx", "out.onnx"}


def counting_loop(name: str, reads: str, steps: str) -> onnx.NodeProto:
    """h ← tanh(h + reads[step]) while step < steps, as Keras writes a recurrence; every h is stacked."""
    body = helper.make_graph(
        [
            node("Gather", f"{reads} {name}.step", f"{name}.row", axis=0),
            node("Add", f"{name}.h {name}.row", f"{name}.sum"),
            node("Tanh", f"{name}.sum", f"{name}.h_next"),
            node("Identity", f"{name}.h_next", f"{name}.slice"),
            node("Add", f"{name}.step one", f"{name}.step_next"),
            node("Less", f"{name}.step_next {name}.steps", f"{name}.go_on"),
        ],
        name,
        [
            small.value(f"{name}.turn", [], TensorProto.INT64),
            small.value(f"{name}.go", [], TensorProto.BOOL),
            *(small.value(f"{name}.{state}", [], TensorProto.INT64) for state in ("step", "steps")),
            small.value(f"{name}.h", [1, 8]),
        ],
        [
            small.value(f"{name}.go_on", [], TensorProto.BOOL),
            *(small.value(f"{name}.{state}", [], TensorProto.INT64) for state in ("step_next", "steps")),
            *(small.value(f"{name}.{state}", [1, 8]) for state in ("h_next", "slice")),
        ],
    )
    made = [f"{name}.{end}" for end in ("last_step", "last_steps", "last", "all")]
    return helper.make_node("Loop", ["", "true", "zero", steps, "begin"], made, name=name, body=body)


def test_a_loop_as_long_as_the_one_before_it(tmp_path: Path) -> None:
    """How often the second one runs is only known when the first is written out."""
    nodes = [
        counting_loop("first", "x", "five"),
        node("Shape", "first.all", "shape"),
        node("Gather", "shape zero", "length"),
        counting_loop("second", "first.all", "length"),
        node("Relu", "second.all", "y"),
    ]
    constants = {"true": True, "zero": 0, "one": 1, "five": 5, "begin": np.zeros([1, 8], np.float32)}
    proto = small.model(
        nodes,
        [small.value("x", [5, 1, 8])],
        [small.value("y", [5, 1, 8])],
        [small.constant(name, np.array(value)) for name, value in constants.items()],
    )
    result = prepared(small.save(proto, tmp_path / "m.onnx"))
    assert result.after.verdict is not None
    assert not result.after.verdict.cpu_nodes
    assert "Loop" not in ops(tmp_path / "out.onnx")


def test_a_detector_that_random_numbers_show_nothing_is_not_taken_for_broken(tmp_path: Path) -> None:
    """Its map is of millionths then, which fp16 drops: no reason to take nodes from the NPU."""
    bias = np.full(8, -17.0, np.float32)
    proto = small.model(
        [node("Gemm", "x w b", "a", name="gemm"), node("Sigmoid", "a", "y", name="sigmoid")],
        [X],
        [Y],
        [small.constant("w", 0.1 * WEIGHT), small.constant("b", bias)],
    )
    model = small.save(proto, tmp_path / "m.onnx")
    found = prepare(model, output=tmp_path / "p.onnx", target=TARGET)
    assert not found.pins
    assert not any("rescue" in attempt.name for attempt in found.attempts)
    assert any("y is fainter on random inputs" in warning for warning in found.warnings)
    # What real inputs leave as faint is meant so: the CPU keeps it.
    np.savez(tmp_path / "real.npz", x=np.ones((1, 2, 8), np.float32))
    found = prepare(model, output=tmp_path / "p.onnx", target=TARGET, calib=tmp_path / "real.npz")
    assert "sigmoid" in {pin.node for pin in found.pins}
