"""Context binaries become models again, which give what the original ones gave."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import small_models
from hexport import facts
from hexport.backend.context_binary import ContextGraph, ContextTensor
from hexport.backend.failures import ContextUnreadable
from hexport.backend.requests import SessionRequest
from hexport.backend.running import run_on_htp
from hexport.cli.wrap import command
from hexport.model import UnreadableModel
from hexport.model.labels import WRAPPED
from hexport.records import to_plain
from hexport.toolchain import Worker
from hexport.wrapping.context_call import CannotWrap, call_of
from hexport.wrapping.verb import wrap

TARGET = facts.find_target("SM8650")
SCALES = {"x": 0.02, "y": 0.05}
ZERO = 128


def quantised() -> onnx.ModelProto:
    """x → Relu → y in 8 bits, whose Q and DQ at the edges the provider leaves to the CPU."""
    node = helper.make_node
    constants = {f"{name}_scale": np.float32(scale) for name, scale in SCALES.items()} | {
        "zero": np.uint8(ZERO)
    }
    return small_models.model(
        [
            node("QuantizeLinear", ["x", "x_scale", "zero"], ["xq"]),
            node("DequantizeLinear", ["xq", "x_scale", "zero"], ["xd"]),
            node("Relu", ["xd"], ["r"]),
            node("QuantizeLinear", ["r", "y_scale", "zero"], ["yq"]),
            node("DequantizeLinear", ["yq", "y_scale", "zero"], ["y"]),
        ],
        [small_models.value("x", [1, 4, 8, 8])],
        [small_models.value("y", [1, 4, 8, 8])],
        [small_models.constant(name, np.asarray(array)) for name, array in constants.items()],
    )


def compile_to(folder: Path, *makers: Callable[[], onnx.ModelProto], **session: str) -> list[Path]:
    """The EPContext models that the provider itself writes; their binary lies beside them."""
    made = []
    with Worker("hexport.backend.jobs", folder / "native.log") as worker:
        for number, make in enumerate(makers):
            model = small_models.save(make(), folder / f"{number}.onnx")
            made.append(folder / f"{number}_ctx.onnx")
            keys = {"enable": "1", "file_path": str(made[-1]), "embed_mode": "0"}
            options = {f"ep.context_{key}": value for key, value in keys.items()} | session
            if session and number == len(makers) - 1:
                options["ep.stop_share_ep_contexts"] = "1"
            provider = {"backend_type": "htp", "soc_model": str(TARGET.soc_model)}
            worker.call("create_session", to_plain(SessionRequest(str(model), "", provider, options)))
    return made


def binary_in(folder: Path) -> Path:
    (binary,) = folder.glob("*.bin")
    return binary


def test_a_float_model_gives_what_it_gave(tmp_path: Path) -> None:
    (original,) = compile_to(tmp_path, small_models.conv_relu)
    result = wrap(binary_in(tmp_path), output=tmp_path / "wrapped")
    (graph,) = result.graphs
    assert (graph.loads, graph.loads_why) == (True, "")
    assert (result.soc_models, result.htp_archs) == ((TARGET.soc_model,), (TARGET.htp_arch,))
    assert [str(t) for t in graph.inputs] == ["x: float32[1,3,16,16]"]
    sample = {"x": np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    # Without the original beside it: the folder is complete.
    here = shutil.move(tmp_path / "wrapped", tmp_path / "moved")
    expected = run_on_htp(original, [sample], TARGET).outputs[0]["y"]
    found = run_on_htp(Path(here) / Path(graph.model).name, [sample], TARGET)
    assert np.ptp(expected) > 1
    np.testing.assert_array_equal(found.outputs[0]["y"], expected)
    assert {part.provider for part in found.parts} == {"QNNExecutionProvider"}


def test_quantised_ends_stay_integers_with_their_scale(tmp_path: Path) -> None:
    (original,) = compile_to(tmp_path, quantised)
    result = wrap(binary_in(tmp_path), output=tmp_path / "wrapped")
    (graph,) = result.graphs
    (taken,), (given,) = graph.inputs, graph.outputs
    assert (taken.dtype, given.dtype) == ("uint8", "uint8")
    assert (taken.scale, given.scale) == tuple(map(pytest.approx, SCALES.values()))
    assert (taken.zero_point, given.zero_point) == (ZERO, ZERO)
    declared = {p.key: p.value for p in onnx.load(graph.model).metadata_props}[WRAPPED]
    assert json.loads(declared)[taken.name] == {"scale": taken.scale, "zero_point": ZERO}
    real = np.random.default_rng(0).uniform(-2, 2, (1, 4, 8, 8)).astype(np.float32)
    expected = run_on_htp(original, [{"x": real}], TARGET).outputs[0]["y"]
    integers = np.clip(np.rint(real / np.float32(SCALES["x"])) + ZERO, 0, 255).astype(np.uint8)
    found = run_on_htp(Path(graph.model), [{taken.name: integers}], TARGET).outputs[0][given.name]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal((found.astype(np.float32) - ZERO) * np.float32(SCALES["y"]), expected)


def test_every_graph_of_a_shared_binary_has_its_model(tmp_path: Path) -> None:
    compile_to(
        tmp_path, small_models.conv_relu, lambda: small_models.conv_relu(2), **{"ep.share_ep_contexts": "1"}
    )
    result = wrap(binary_in(tmp_path), output=tmp_path / "wrapped")
    assert sorted(graph.inputs[0].shape for graph in result.graphs) == [(1, 3, 16, 16), (2, 3, 16, 16)]
    assert {graph.loads for graph in result.graphs} == {None}
    assert "share weights" in result.graphs[0].loads_why
    assert len({graph.model for graph in result.graphs}) == 2
    for graph in result.graphs:
        (node,) = onnx.load(graph.model).graph.node
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        assert attributes["partition_name"].decode() == graph.graph == node.name
        assert (Path(graph.model).parent / attributes["ep_cache_context"].decode()).is_file()


def test_the_command_says_what_it_made(tmp_path: Path) -> None:
    compile_to(tmp_path, quantised)
    arguments = [str(binary_in(tmp_path)), "-o", str(tmp_path / "w")]
    done = CliRunner().invoke(command, [*arguments, "--json"], standalone_mode=False)
    document = json.loads(done.output)
    assert (document["schema_version"], done.return_value) == (1, 0)
    assert document["graphs"][0]["inputs"][0]["zero_point"] == ZERO
    shown = CliRunner().invoke(command, arguments, standalone_mode=False).output
    assert "integer − 128" in shown


def test_a_binary_may_be_wrapped_where_it_is(tmp_path: Path) -> None:
    compile_to(tmp_path, small_models.conv_relu)
    binary = binary_in(tmp_path)
    before = binary.read_bytes()
    result = wrap(binary, output=tmp_path)
    assert result.graphs[0].loads
    assert binary.read_bytes() == before


def test_what_is_no_binary_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "g.bin").write_bytes(b"\0" * 5000)
    with pytest.raises(ContextUnreadable):
        wrap(tmp_path / "g.bin", output=tmp_path / "out")
    for missing in (tmp_path / "none.bin", tmp_path):
        with pytest.raises(UnreadableModel):
            wrap(missing, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_type_that_onnx_runtime_cannot_pass_is_named() -> None:
    graph = ContextGraph("g", (ContextTensor("x", "ufixed4", (1, 2)),), ())
    with pytest.raises(CannotWrap, match="'x' of type ufixed4"):
        call_of(graph, "b.bin", build_id="v2", multi_soc=False, metadata={})


def test_a_call_is_a_model_to_onnx() -> None:
    tensors = (ContextTensor("a", "bool8", ()), ContextTensor("b", "sfixed16", (3,)))
    data = call_of(
        ContextGraph("g", tensors, tensors[:1]), "b.bin", build_id="v2", multi_soc=True, metadata={}
    )
    model = onnx.load_from_string(data)
    values = [
        (v.name, v.type.tensor_type.elem_type, len(v.type.tensor_type.shape.dim)) for v in model.graph.input
    ]
    assert values == [("a", onnx.TensorProto.BOOL, 0), ("b", onnx.TensorProto.INT16, 1)]
    assert all(v.type.tensor_type.HasField("shape") for v in model.graph.input)
    attributes = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    assert attributes["is_multi_soc_ep_context"] == 1
