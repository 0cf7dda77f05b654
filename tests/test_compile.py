"""``compile`` against the real compiler: what is written, what it says of itself, and that it computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport import facts
from hexport.backend.context_model import read_context_model
from hexport.backend.running import run_on_htp
from hexport.compiling.options import CompileOptions
from hexport.compiling.verb import Compiled, compile_models
from test_context_binary import qdq_conv, two_and_two

TARGET = facts.find_target("SM8650")
Save = Callable[[onnx.ModelProto, str], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    return lambda proto, name: small.save(proto, tmp_path / f"{name}.onnx")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def conv_input() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)}


def wide_matmul(rows: int) -> onnx.ModelProto:
    """1 MB of weights, whatever the number of rows."""
    weight = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    return small.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")],
        [small.value("x", [rows, 512])],
        [small.value("y", [rows, 512])],
        [small.constant("w", weight)],
    )


def loop_with_captured_constant() -> onnx.ModelProto:
    """x·w on the NPU, then a Loop whose body reads a constant of the main graph and folds another."""
    node = helper.make_node
    body = helper.make_graph(
        [
            node("Squeeze", ["boxed"], ["plain"], name="squeeze"),
            node("Range", ["zero", "plain", "one"], ["steps"], name="range"),
            node("Cast", ["steps"], ["float_steps"], name="cast", to=TensorProto.FLOAT),
            node("Add", ["state", "float_steps"], ["next"], name="add"),
            node("Identity", ["go"], ["go_on"], name="identity"),
        ],
        "body",
        [
            small.value("number", [], TensorProto.INT64),
            small.value("go", [], TensorProto.BOOL),
            small.value("state", [4, 16]),
        ],
        [small.value("go_on", [], TensorProto.BOOL), small.value("next", [4, 16])],
    )
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    constants = {
        "w": weight, "boxed": np.array([16]), "zero": np.array(0), "one": np.array(1),
        "trips": np.array(3), "true": np.array(True),
    }  # fmt: skip
    return small.model(
        [
            node("MatMul", ["x", "w"], ["m"], name="matmul"),
            node("Loop", ["trips", "true", "m"], ["y"], name="loop", body=body),
        ],
        [small.value("x", [4, 16])],
        [small.value("y", [4, 16])],
        [small.constant(name, array) for name, array in constants.items()],
    )


# ── one model, one chip ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Compiled]:
    source = small.save(small.conv_relu(), tmp_path_factory.mktemp("conv") / "conv.onnx")
    return source, compile_models([source], ["SM8650"], source.parent / "out")


def test_a_model_and_its_binary_are_written(conv: tuple[Path, Compiled]) -> None:
    source, result = conv
    (artefact,), (model,) = result.artefacts, result.models
    assert artefact.binary is not None
    assert files(source.parent / "out") == {model.path.name, artefact.binary.name}
    assert model.path.name == "conv.SM8650_ctx.onnx"
    assert (model.size, artefact.size) == (model.path.stat().st_size, artefact.binary.stat().st_size)
    assert artefact.targets == (TARGET,)
    assert result.full
    assert result.warnings == ()
    # Wherever the folder goes, the model finds its binary.
    main = read_context_model(model.path).main_call
    assert main is not None
    assert main.cache == artefact.binary.name.encode()


def test_the_binary_says_what_was_asked_for(conv: tuple[Path, Compiled]) -> None:
    (context,) = conv[1].artefacts[0].contexts
    assert (context.soc_model, context.htp_arch) == (TARGET.soc_model, TARGET.htp_arch)
    assert context.sdk == facts.sdk_of(facts.installed_release() or "")
    assert tuple(graph.name for graph in context.graphs) == conv[1].models[0].graphs
    assert [t.shape for t in context.graphs[0].inputs] == [(1, 3, 16, 16)]


def test_what_is_compiled_computes_the_same_bits(conv: tuple[Path, Compiled]) -> None:
    source, result = conv
    expected = run_on_htp(source, [conv_input()], TARGET).outputs[0]["y"]
    assert expected.any()
    found = run_on_htp(result.models[0].path, [conv_input()], TARGET).outputs[0]["y"]
    np.testing.assert_array_equal(found, expected)


def test_the_same_model_gives_the_same_bytes(conv: tuple[Path, Compiled], tmp_path: Path) -> None:
    again = small.save(small.conv_relu(), tmp_path / "conv.onnx")
    result = compile_models([again], [57], tmp_path / "elsewhere" / "deep")
    for before, after in zip(conv[1].artefacts[0].files, result.artefacts[0].files, strict=True):
        assert before.name == after.name
        assert before.read_bytes() == after.read_bytes()


def test_json_has_what_programs_rely_on(conv: tuple[Path, Compiled]) -> None:
    document = json.loads(json.dumps(conv[1].to_json()))
    assert document["schema_version"] == 1
    (artefact,) = document["artefacts"]
    assert artefact["targets"] == [{"name": "SM8650", "soc_model": 57, "htp_arch": 75}]
    assert artefact["contexts"][0]["graphs"][0]["vtcm_mb"] == 4
    assert artefact["models"][0]["nodes"] == {"npu": 2, "cpu": 0}


def test_embedded(save: Save, tmp_path: Path) -> None:
    source = save(small.conv_relu(), "conv")
    result = compile_models([source], ["SM8650"], tmp_path / "out", embed=True)
    (artefact,), (model,) = result.artefacts, result.models
    assert files(tmp_path / "out") == {"conv.SM8650_ctx.onnx"}
    assert artefact.binary is None
    assert artefact.contexts[0].soc_model == 57
    assert model.size > artefact.size > 0
    expected = run_on_htp(source, [conv_input()], TARGET).outputs[0]["y"]
    np.testing.assert_array_equal(run_on_htp(model.path, [conv_input()], TARGET).outputs[0]["y"], expected)


def test_dynamic_dims_take_sizes(save: Save, tmp_path: Path) -> None:
    result = compile_models([save(small.conv_relu("batch"), "m")], [57], tmp_path, dims={"batch": 2})
    assert result.artefacts[0].contexts[0].graphs[0].inputs[0].shape == (2, 3, 16, 16)


def test_weights_in_another_file(tmp_path: Path) -> None:
    result = compile_models([small.external(small.conv_relu(), tmp_path)], [57], tmp_path / "out")
    assert result.full


# ── several ───────────────────────────────────────────────────────────────────────────────────────────────


def test_several_targets_have_a_binary_each(save: Save, tmp_path: Path) -> None:
    result = compile_models([save(qdq_conv(), "q")], ["SM8650", "QCM6490", 57], tmp_path / "out")
    assert [[t.chip for t in a.targets] for a in result.artefacts] == [["SM8650"], ["QCM6490"]]
    assert files(tmp_path / "out") == {
        f"q.{chip}_ctx{end}" for chip in ("SM8650", "QCM6490") for end in (".onnx", "_qnn.bin")
    }
    (artefact,) = result.for_target("QCM6490")
    assert artefact.contexts[0].htp_arch == facts.find_target("QCM6490").htp_arch


def test_one_binary_for_several_chips(save: Save, tmp_path: Path) -> None:
    chips = ["SM8650", "SC8380XP", "SM8750"]
    apart = compile_models([save(wide_matmul(1), "m")], chips, tmp_path / "apart")
    result = compile_models(
        [tmp_path / "m.onnx"], chips, tmp_path / "out", multi_soc=True, options=CompileOptions(vtcm_mb=2)
    )
    (artefact,) = result.artefacts
    assert files(tmp_path / "out") == {
        "m.SM8650-SC8380XP-SM8750_ctx.onnx", "m.SM8650-SC8380XP-SM8750_ctx_qnn.bin"
    }  # fmt: skip
    assert [(c.soc_model, c.htp_arch) for c in artefact.contexts] == [
        (t.soc_model, t.htp_arch) for t in map(facts.find_target, chips)
    ]
    assert {graph.vtcm_mb for context in artefact.contexts for graph in context.graphs} == {2}
    # The weights are there once.
    assert artefact.size < 0.5 * sum(a.size for a in apart.artefacts)
    assert any("simulator cannot load" in warning for warning in result.warnings)


def test_models_that_share_weights(save: Save, tmp_path: Path) -> None:
    sources = [save(wide_matmul(rows), f"rows{rows}") for rows in (1, 8)]
    apart = compile_models(sources, ["SM8650"], tmp_path / "apart")
    options = CompileOptions(finalization=2)
    result = compile_models(sources, ["SM8650"], tmp_path / "out", share_weights=True, options=options)
    (artefact,) = result.artefacts
    assert artefact.binary is not None
    assert files(tmp_path / "out") == {
        artefact.binary.name, "rows1.SM8650_ctx.onnx", "rows8.SM8650_ctx.onnx"
    }  # fmt: skip
    assert artefact.size < 1.15 * max(a.size for a in apart.artefacts)
    graphs = {graph.name: graph for graph in artefact.contexts[0].graphs}
    for model, rows in zip(artefact.models, (1, 8), strict=True):
        (name,) = model.graphs
        assert graphs[name].inputs[0].shape == (rows, 512)
        assert graphs[name].optimization_level == 2
        main = read_context_model(model.path).main_call
        assert main is not None
        assert main.cache == artefact.binary.name.encode()
    assert any("ep.share_ep_contexts" in warning for warning in result.warnings)


def test_several_inputs_and_outputs(save: Save, tmp_path: Path) -> None:
    result = compile_models([save(two_and_two(4), "m")], [57], tmp_path / "out", share_weights=False)
    (graph,) = result.artefacts[0].contexts[0].graphs
    assert {t.name: t.shape for t in graph.inputs} == {"a": (4, 8), "b": (4, 16)}


def test_a_bias_that_is_an_input_loses_its_axis_of_one(save: Save, tmp_path: Path) -> None:
    proto = small.model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        [small.value("x", [2, 8]), small.value("b", [1, 4])],
        [small.value("y", [2, 4])],
        [small.constant("w", np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))],
    )
    result = compile_models([save(proto, "m")], [57], tmp_path / "out")
    (graph,) = result.artefacts[0].contexts[0].graphs
    assert {t.name: t.shape for t in graph.inputs} == {"x": (2, 8), "b": (4,)}


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("where", "dtype", "left"), [("cpu", "ufixed8", 2), ("npu", "float32", 0), (None, "ufixed8", 2)]
)
def test_where_inputs_are_quantised(
    where: str | None, dtype: str, left: int, save: Save, tmp_path: Path
) -> None:
    options = CompileOptions(io_quantization=where)
    result = compile_models([save(qdq_conv(), "q")], ["QCM6490"], tmp_path / "out", options=options)
    assert result.artefacts[0].contexts[0].graphs[0].inputs[0].dtype == dtype
    assert len(result.models[0].verdict.io_quantization) == left
    assert result.full


def test_options_arrive(save: Save, tmp_path: Path) -> None:
    options = CompileOptions(
        finalization=3,
        vtcm_mb=8,
        fp16=True,
        priority="high",
        prepare_only=True,
        more={"enable_htp_spill_fill_buffer": "1"},
    )
    result = compile_models([save(small.conv_relu(), "m")], [57], tmp_path / "out", options=options)
    (graph,) = result.artefacts[0].contexts[0].graphs
    assert (graph.optimization_level, graph.vtcm_mb) == (3, 8)


def test_channels_last_saves_a_transpose_and_changes_nothing_else(save: Save, tmp_path: Path) -> None:
    source = save(small.conv_relu(), "m")
    plain = compile_models([source], [57], tmp_path / "plain")
    result = compile_models([source], [57], tmp_path / "out", nhwc_inputs=["x"])
    contract, worth = result.warnings
    assert "1×16×16×3 instead of 1×3×16×16" in contract
    before, after = plain.models[0].transposes, result.models[0].transposes
    assert after == before - 1
    assert worth.endswith(f"{after}, without: {before}")
    assert result.full
    expected = run_on_htp(source, [conv_input()], TARGET).outputs[0]["y"]
    turned = {"x": conv_input()["x"].transpose(0, 2, 3, 1)}
    found = run_on_htp(result.models[0].path, [turned], TARGET).outputs[0]["y"]
    np.testing.assert_array_equal(found, expected)


def test_channels_last_where_it_saves_nothing_is_said(save: Save, tmp_path: Path) -> None:
    proto = small.model(
        [helper.make_node("Relu", ["x"], ["y"])],
        [small.value("x", [1, 3, 8, 8])],
        [small.value("y", [1, 3, 8, 8])],
    )
    result = compile_models([save(proto, "m")], [57], tmp_path / "out", nhwc_inputs=["x"])
    assert any("saves nothing" in warning for warning in result.warnings)


# ── the CPU ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_stays_on_the_cpu_is_said_with_its_reason(save: Save, tmp_path: Path) -> None:
    result = compile_models([save(small.cut_by_erf(), "cut")], [57], tmp_path / "out")
    (model,) = result.models
    (erf,) = model.verdict.cpu_nodes
    assert (erf.name, erf.cuts) == ("the_erf", True)
    assert "`Erf` are not supported" in erf.reason
    assert len(model.graphs) == len(model.verdict.partitions) == 2
    assert (result.meets("full"), result.meets("99"), result.meets(None)) == (False, True, True)


def test_a_loop_that_reads_constants_of_the_main_graph(save: Save, tmp_path: Path) -> None:
    source = save(loop_with_captured_constant(), "loop")
    result = compile_models([source], [57], tmp_path / "out")
    assert result.models[0].verdict.nodes.npu == 1
    feeds = {"x": np.random.default_rng(2).normal(size=(4, 16)).astype(np.float32)}
    expected = run_on_htp(source, [feeds], TARGET).outputs[0]["y"]
    found = run_on_htp(result.models[0].path, [feeds], TARGET).outputs[0]["y"]
    np.testing.assert_array_equal(found, expected)
    assert any("could not save it compiled as it is" in warning for warning in result.warnings)
