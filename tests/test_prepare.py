"""``prepare``: what it does, what it keeps, and what it refuses to believe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

import small_models as small
from hexport.errors import BadSamples, UsageError
from hexport.preparation import cleaning, pipeline
from hexport.preparation.verb import prepare
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.values import fixed_shape


def chosen_by_rate() -> onnx.ModelProto:
    """An If that looks at input ``sr``: × 2 at 16000, × 3 otherwise; the batch is dynamic."""

    def branch(name: str, factor: float) -> onnx.GraphProto:
        constant = helper.make_node("Constant", [], [f"{name}_c"], value_float=factor)
        multiply = helper.make_node("Mul", ["x", f"{name}_c"], [name])
        return helper.make_graph([constant, multiply], name, [], [small.value(name, None)])

    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is16k"]),
        helper.make_node(
            "If", ["is16k"], ["z"], then_branch=branch("double", 2.0), else_branch=branch("triple", 3.0)
        ),
        helper.make_node("Pow", ["z", "three"], ["y"], name="cube"),
    ]
    inputs = [small.value("x", ["batch", 8]), small.value("sr", [], onnx.TensorProto.INT64)]
    constants = [small.constant("rate", np.array(16000)), small.constant("three", np.array(3, np.float32))]
    return small.model(nodes, inputs, [small.value("y", ["batch", 8])], constants)


def run(path: Path, **feeds: np.ndarray) -> list[np.ndarray]:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("prepared")
    source = chosen_by_rate()
    helper.set_model_props(source, {"author": "tester"})
    path = small.save(source, folder / "m.onnx")
    result = prepare(
        path, output=folder / "out.onnx", target="SM8650", dims={"batch": 2}, freeze={"sr": "16000"}
    )
    assert result.full
    assert result.after.htp is not None
    assert result.after.htp.sqnr_db > 50
    assert any("random inputs" in warning for warning in result.warnings)
    return path, folder / "out.onnx"


def test_the_frozen_input_is_gone_and_its_if_with_it(prepared: tuple[Path, Path]) -> None:
    proto = onnx.load(prepared[1])
    assert [value.name for value in proto.graph.input] == ["x"]
    assert not {"If", "Equal"} & {node.op_type for node in proto.graph.node}
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    (expected,) = run(prepared[0], x=x, sr=np.array(16000))
    (got,) = run(prepared[1], x=x)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(expected, (2 * x) ** 3, rtol=1e-5)


def test_names_types_and_metadata_are_kept(prepared: tuple[Path, Path]) -> None:
    proto = onnx.load(prepared[1])
    onnx.checker.check_model(proto, full_check=True)
    (output,) = proto.graph.output
    assert output.name == "y"
    assert output.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    assert metadata["author"] == "tester"
    assert "hexport.prepared" in metadata


def test_the_same_gives_the_same_bytes(prepared: tuple[Path, Path], tmp_path: Path) -> None:
    again = tmp_path / "again.onnx"
    prepare(prepared[0], output=again, target="SM8650", dims={"batch": 2}, freeze={"sr": "16000"})
    assert again.read_bytes() == prepared[1].read_bytes()


def test_a_step_that_breaks_the_model_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(model: ir.Model, _: Path) -> ir.Model:
        weight = next(v for v in model.graph.initializers.values() if v.name == "w")
        weight.const_value = ir.tensor(np.zeros((8, 3, 3, 3), np.float32), name="w")
        return model

    def die(model: ir.Model, _: Path) -> ir.Model:
        raise RuntimeError("this library has a bad day")

    monkeypatch.setattr(cleaning, "STEPS", (("lie", lie), ("die", die)))
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    result = prepare(path, output=tmp_path / "out.onnx", target="SM8650")
    attempts = {attempt.name: attempt for attempt in result.attempts}
    assert not attempts["lie"].kept
    assert "changes the result" in attempts["lie"].why
    assert not attempts["die"].kept
    assert "bad day" in attempts["die"].why
    x = np.ones((1, 3, 16, 16), np.float32)
    np.testing.assert_array_equal(run(path, x=x)[0], run(tmp_path / "out.onnx", x=x)[0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"freeze": {"rate": "1"}}, "no such input"),
        ({"freeze": {"sr": "often"}}, "not a value"),
        ({"rules": "NoSuchRule"}, "no rule 'NoSuchRule'"),
        ({"output": Path("no", "such", "folder", "o.onnx")}, "no folder"),
    ],
)
def test_wrong_calls(tmp_path: Path, options: dict[str, object], says: str) -> None:
    path = small.save(chosen_by_rate(), tmp_path / "m.onnx")
    arguments = {"output": tmp_path / "o.onnx", "target": "SM8650", "dims": {"batch": 1}, **options}
    with pytest.raises(UsageError) as caught:
        prepare(path, **arguments)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"z": np.zeros((3, 1, 3, 16, 16), np.float32)}, "nothing for input 'x'"),
        ({"x": np.zeros((3, 1, 3, 16, 15), np.float32)}, "the model is given [1, 3, 16, 16]"),
        ({"x": np.zeros((3, 1, 3, 16, 16))}, "takes float32"),
        ({"x": np.zeros((0, 1, 3, 16, 16), np.float32)}, "at least one"),
        ({"x": np.float32(1)}, "a lone number"),
        ({"x": np.full((3, 1, 3, 16, 16), np.nan, np.float32)}, "sample 0: input 'x' holds nan"),
    ],
)
def test_bad_calibration_data(tmp_path: Path, arrays: dict[str, np.ndarray], says: str) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", **arrays)
    with pytest.raises(BadSamples) as caught:
        prepare(path, output=tmp_path / "o.onnx", target="SM8650", calib=tmp_path / "c.npz")
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off", b"\x93NUMPY\x01\x00"])
def test_calibration_data_that_is_no_npz(tmp_path: Path, content: bytes) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(BadSamples, match="cannot be read"):
        prepare(path, output=tmp_path / "o.onnx", target="SM8650", calib=tmp_path / "c.npz")


def test_samples_may_be_in_any_form(tmp_path: Path) -> None:
    """As calibration data: a folder, a file a sample, here without the batch axis."""
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    (tmp_path / "samples").mkdir()
    for number in range(4):
        np.save(tmp_path / "samples" / f"{number}.npy", np.full((3, 16, 16), number, np.float32))
    result = prepare(
        path, output=tmp_path / "o.onnx", target="SM8650", calib=tmp_path / "samples", rules="PowToMul"
    )
    assert "proved on the first 3 of 4 samples" in result.warnings
    assert "input 'x': the samples have no batch axis, and one is put in front" in result.warnings
    assert not [warning for warning in result.warnings if "random" in warning]


def test_samples_left_out_are_said(tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", x=np.random.default_rng(0).normal(size=(5, 1, 3, 16, 16)).astype(np.float32))
    result = prepare(
        path, output=tmp_path / "o.onnx", target="SM8650", calib=tmp_path / "c.npz", rules="PowToMul"
    )
    assert "proved on the first 3 of 5 samples" in result.warnings


def test_an_old_file_survives_a_failure(tmp_path: Path) -> None:
    old = tmp_path / "out.onnx"
    old.write_bytes(b"precious")
    path = small.save(small.conv_relu("N"), tmp_path / "m.onnx")
    command = [
        sys.executable,
        "-m",
        "hexport",
        "prepare",
        str(path),
        "-o",
        str(old),
        "--target",
        "SM8650",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "HX405"
    assert old.read_bytes() == b"precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]


def test_the_command(tmp_path: Path) -> None:
    path = small.save(small.conv_relu("N"), tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    command = [
        sys.executable,
        "-m",
        "hexport",
        "prepare",
        str(path),
        "-o",
        str(out),
        "--target",
        "57",
        "--dim",
        "N=1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "every node runs on the NPU" in done.stdout
    assert out.exists()


@pytest.mark.parametrize("refused", [frozenset(), frozenset({"ReduceSumSquare"})])
def test_what_fp16_could_not_hold_is_tried_again_once_it_can(
    refused: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form for the NPU may be of no use until a rule for fp16 has scaled what it computes."""
    start, scaled, taken = (SimpleNamespace(refused_ops=lambda: refused) for _ in range(3))
    monkeypatch.setattr(pipeline, "_support_round", lambda _b, _r, at: taken if at is scaled else None)
    monkeypatch.setattr(pipeline, "_range_round", lambda _b, _r, at: scaled if at is start else at)
    end = pipeline.improve(None, lambda _: (), start)
    assert end is (taken if refused else scaled)


def test_a_spectrum_is_one_sided_unless_it_says_otherwise() -> None:
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    constants = [small.constant("step", np.array(8)), small.constant("window", np.ones(16, np.float32))]
    proto = small.model([node], [small.value("x", [1, 64, 1])], [small.value("y", None)], constants)
    model = ir.from_proto(proto)
    infer_shapes(model)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": np.ones((1, 64, 1), np.float32)})
    assert fixed_shape(model.graph[0].outputs[0]) == wanted.shape
