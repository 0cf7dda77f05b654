"""Code for the NPU goes between .pte and ONNX and back, and gives the same bits everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models
from hexport import convert, facts, inspect, run
from hexport.backend.running import run_on_htp
from hexport.errors import UsageError
from hexport.executorch.pte.failures import ContextTooNew, NotConvertible
from hexport.executorch.pte.sidecar import find_sidecar
from hexport.model.labels import WRAPPED
from hexport.runtime.array_files import read_arrays
from pte_files import CHIP, MadePtes, ptes_fixture  # noqa: F401 - named ptes
from test_wrap import binary_in, compile_to

SOC = facts.find_target(CHIP)


def test_there_and_back(ptes: MadePtes, tmp_path: Path) -> None:
    """Inputs and outputs that cross on the way find each other by name; three files, the same bits."""
    done = subprocess.run(
        [sys.executable, "-m", "hexport", "convert", str(ptes.path("crossed")), "--json",
         "-o", str(tmp_path / "c.onnx")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert there["proof"] == {"identical": True, "why": ""}
    assert [Path(file).name for file in there["files"]] == ["c.onnx", "c.bin"]
    back = convert(tmp_path / "c.onnx", output=tmp_path / "c.pte")
    assert back.proof.identical
    sidecar = find_sidecar(tmp_path / "c.pte")
    assert sidecar is not None
    assert (sidecar.target, sidecar.soc_model) == (SOC.chip, SOC.soc_model)

    given = ptes.inputs("crossed")
    named = {one["graph"]: given[one["pte"]] for one in there["inputs"]}
    onnx_outputs = run_on_htp(tmp_path / "c.onnx", [named], SOC).outputs[0]
    np.savez(tmp_path / "first.npz", **given)
    np.savez(tmp_path / "again.npz", **named)
    run(ptes.path("crossed"), inputs=tmp_path / "first.npz", output=tmp_path / "first_out.npz")
    run(tmp_path / "c.pte", inputs=tmp_path / "again.npz", output=tmp_path / "again_out.npz")
    first, again = read_arrays(tmp_path / "first_out.npz"), read_arrays(tmp_path / "again_out.npz")
    for output in there["outputs"]:
        expected = first[output["pte"]]
        assert np.ptp(expected) > 0
        np.testing.assert_array_equal(onnx_outputs[output["graph"]], expected)
        np.testing.assert_array_equal(again[output["graph"]], expected)


def test_quantised_ends_keep_their_encodings(ptes: MadePtes, tmp_path: Path) -> None:
    there = convert(ptes.path("bytes"), output=tmp_path / "b.onnx")
    assert there.proof.identical
    (taken,), (given,) = there.inputs, there.outputs
    assert (taken.dtype, given.dtype) == ("uint8", "uint8")
    assert taken.scale is not None
    assert given.scale is not None
    stored = {p.key: p.value for p in onnx.load(tmp_path / "b.onnx").metadata_props}[WRAPPED]
    assert json.loads(stored)[taken.graph] == {"scale": taken.scale, "zero_point": taken.zero_point}
    # The numbers that they stand for are those of the float module.
    real = ptes.inputs("bytes")["input_0"]
    integers = np.clip(np.rint(real / taken.scale) + taken.zero_point, 0, 255).astype(np.uint8)
    got = run_on_htp(tmp_path / "b.onnx", [{taken.graph: integers}], SOC).outputs[0][given.graph]
    meant = (got.astype(np.float32) - given.zero_point) * given.scale
    assert np.abs(meant - ptes.expected("bytes")["output_0"]).max() < 4 * given.scale
    # An ONNX model whose edges quantise on the CPU gives up those, which is said, and keeps the rest.
    wrapped = _with_float_edges(tmp_path / "b.onnx", tmp_path / "edges.onnx")
    back = convert(wrapped, output=tmp_path / "b.pte")
    assert back.proof.identical
    assert any("takes and gives integers" in note for note in back.notes)
    assert (back.inputs[0].dtype, back.inputs[0].scale) == ("uint8", taken.scale)


def _with_float_edges(source: Path, target: Path) -> Path:
    proto = onnx.load(source)
    (node,) = proto.graph.node
    x, y = node.input[0], node.output[0]
    one, zero = small_models.constant("one", np.float32(1)), small_models.constant("zero", np.uint8(0))
    before = helper.make_node("QuantizeLinear", ["xf", "one", "zero"], [x], name="q")
    after = helper.make_node("DequantizeLinear", [y, "one", "zero"], ["yf"], name="d")
    proto.graph.node.insert(0, before)
    proto.graph.node.append(after)
    proto.graph.initializer.extend([one, zero])
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    proto.graph.input[0].CopyFrom(small_models.value("xf", shape))
    proto.graph.output[0].CopyFrom(small_models.value("yf", shape))
    return small_models.save(proto, target)


def test_a_program_in_parts_is_not_taken_for_one(ptes: MadePtes, tmp_path: Path) -> None:
    with pytest.raises(NotConvertible) as raised:
        convert(ptes.path("split"), output=tmp_path / "s.onnx")
    assert "aten::sin.out" in raised.value.why
    part = convert(ptes.path("split"), output=tmp_path / "s.onnx", delegate=1)
    assert part.proof.identical is None
    (call,) = onnx.load(tmp_path / "s.onnx").graph.node
    assert call.input[0] == part.inputs[0].graph
    with pytest.raises(NotConvertible, match="no QNN delegate 7"):
        convert(ptes.path("split"), output=tmp_path / "s.onnx", delegate=7)


def test_the_data_alone(ptes: MadePtes, tmp_path: Path) -> None:
    convert(ptes.path("two"), output=tmp_path / "two.bin")
    assert inspect(tmp_path / "two.bin").kind == "context_binary"
    convert(ptes.path("online"), output=tmp_path / "o.dlc")
    assert inspect(tmp_path / "o.dlc").kind == "dlc"
    for name, suffix in (("two", "dlc"), ("online", "bin"), ("online", "onnx"), ("cpu", "onnx")):
        with pytest.raises(NotConvertible):
            convert(ptes.path(name), output=tmp_path / f"x.{suffix}")
    assert not list(tmp_path.glob("x.*"))


def test_shared_weights_are_wrapped_and_not_proved(ptes: MadePtes, tmp_path: Path) -> None:
    done = convert(ptes.path("shared"), output=tmp_path / "s.onnx", method="many")
    assert done.proof.identical is None
    assert "share weights" in done.proof.why
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == ["s_many.onnx", "s_one.onnx"]
    assert done.files[0].endswith("s_many.onnx")


def test_what_executorch_could_not_load_is_refused_before(ptes: MadePtes, tmp_path: Path) -> None:
    """hexport's own QNN is newer than executorch's."""
    (model,) = compile_to(tmp_path, small_models.conv_relu)
    with pytest.raises(ContextTooNew) as raised:
        convert(model, output=tmp_path / "m.pte")
    assert "onnxruntime-qnn==2.5.0" in raised.value.next
    with pytest.raises(ContextTooNew):
        convert(binary_in(tmp_path), output=tmp_path / "m.pte")

    def odd() -> onnx.ModelProto:
        proto = small_models.conv_relu()
        proto.graph.node[-1].output[0] = proto.graph.output[0].name = "my_output_1"
        return proto

    (tmp_path / "odd").mkdir()
    (model,) = compile_to(tmp_path / "odd", odd)
    with pytest.raises(NotConvertible, match="does not give the output 'my_output_1' back"):
        convert(model, output=tmp_path / "m.pte")
    assert not list(tmp_path.glob("m.pte*"))


def test_wrong_calls(ptes: MadePtes, tmp_path: Path) -> None:
    plain = small_models.save(small_models.conv_relu(), tmp_path / "m.onnx")
    with pytest.raises(NotConvertible):
        convert(plain, output=tmp_path / "m.pte")
    for how in (
        {"output": tmp_path / "x.pte"},
        {"output": tmp_path / "no" / "x.onnx"},
        {"output": tmp_path / "x.onnx", "graph": "g"},
        {"output": tmp_path / "x.onnx", "target": CHIP},
    ):
        with pytest.raises(UsageError):
            convert(ptes.path("two"), **how)  # type: ignore[arg-type]
    (tmp_path / "b.bin").write_bytes(b"\0" * 64)
    with pytest.raises(UsageError, match=r"b\.bin does not become"):
        convert(tmp_path / "b.bin", output=tmp_path / "x.onnx")
    with pytest.raises(UsageError):
        convert(tmp_path / "b.bin", output=tmp_path / "x.pte", method="forward")
