"""``compile --format dlc`` against the real IR backend: what is written, what it says, what is refused."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport import HexportError, facts
from hexport.backend.options import InvalidOption
from hexport.cli.main import main
from hexport.compiling import dlc_files
from hexport.compiling.dlc import compile_to_dlc
from hexport.compiling.options import CompileOptions
from hexport.compiling.refusals import CompiledOtherwise, NothingCompiled, SeveralGraphs
from hexport.environments.choosing import using
from hexport.environments.record import Toolchain
from hexport.errors import UsageError
from hexport.inspection.dlc import inspect_dlc
from hexport.inspection.verb import inspect
from hexport.model.staging import StagedModel, stage
from test_context_binary import qdq_conv

Save = Callable[[onnx.ModelProto, str], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    return lambda proto, name: small.save(proto, tmp_path / f"{name}.onnx")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def hexport(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command, in this process, which has the imports behind it already."""
    out, err = io.StringIO(), io.StringIO()
    words = ["hexport", *map(str, arguments)]
    handler = signal.getsignal(signal.SIGTERM)
    argv = patch.object(sys, "argv", words)
    with redirect_stdout(out), redirect_stderr(err), argv, pytest.raises(SystemExit) as end:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert isinstance(end.value.code, int)
    return subprocess.CompletedProcess(words, end.value.code, out.getvalue(), err.getvalue())


def lstm() -> onnx.ModelProto:
    weights = np.random.default_rng(0).normal(size=(1, 32, 8)).astype(np.float32)
    return small.model(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="lstm", hidden_size=8)],
        [small.value("x", [3, 1, 8])],
        [small.value("y", [3, 1, 1, 8])],
        [small.constant("w", weights), small.constant("r", weights)],
    )


# ── what is written, and what it says of itself ───────────────────────────────────────────────────────────


def test_a_model_in_one_graph_becomes_one_file(save: Save, tmp_path: Path) -> None:
    result = compile_to_dlc([save(small.conv_relu(), "m")], "SM8650", tmp_path / "given name.dlc")
    assert files(tmp_path) == {"m.onnx", "given name.dlc"}
    (file,) = result.models[0].files
    assert (file.path, file.size) == (tmp_path / "given name.dlc", file.path.stat().st_size)
    assert result.full
    assert result.warnings == ()
    found = inspect(file.path)
    assert found.kind == "dlc"
    assert found.content == file.content
    (graph,) = file.content.contents
    assert [(t.name, t.dtype, t.dims) for t in graph.inputs] == [("x", "float32", (1, 3, 16, 16))]
    assert [(t.name, t.dtype, t.dims) for t in graph.outputs] == [("y", "float32", (1, 8, 16, 16))]
    # A Transpose at each end, because the NPU computes channels last; Relu is called Neuron there.
    assert graph.operators == {"Transpose": 2, "Conv2d": 1, "Neuron": 1}
    assert file.content.weight_bytes >= 8 * 3 * 3 * 3 * 4
    assert file.content.sdk.startswith(f"{facts.sdk_of(facts.installed_release() or '')}.")


def test_the_same_model_gives_the_same_bytes_wherever_it_lies(save: Save, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    one = save(small.conv_relu(), "m")
    two = small.save(small.conv_relu(), tmp_path / "elsewhere" / "other.onnx")
    for model, target, name in ((one, "SM8650", "a.dlc"), (two, "SC8380XP", "b.dlc")):
        compile_to_dlc([model], target, tmp_path / name)
    # Nor is a DLC code for one of the two chips.
    assert (tmp_path / "a.dlc").read_bytes() == (tmp_path / "b.dlc").read_bytes()


def test_only_dates_are_changed(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save(small.conv_relu(), "m")
    compile_to_dlc([model], "SM8650", tmp_path / "without.dlc")
    monkeypatch.setattr(dlc_files, "_remove_dates", lambda _: None)
    compile_to_dlc([model], "SM8650", tmp_path / "with.dlc")
    pair = [(tmp_path / name).read_bytes() for name in ("without.dlc", "with.dlc")]
    places = [i for i, (a, b) in enumerate(zip(*pair, strict=True)) if a != b]
    with zipfile.ZipFile(tmp_path / "with.dlc") as archive:
        entries = [e for e in archive.infolist() if e.filename.startswith("dlc.metadata")]
    inside = [(e.header_offset, e.header_offset + 200 + e.file_size) for e in entries]
    assert places
    assert all(any(start < place < end for start, end in inside) for place in places)


def test_quantised_inputs_and_outputs_are_told(save: Save, tmp_path: Path) -> None:
    result = compile_to_dlc([save(qdq_conv(), "m")], "SM8650", tmp_path / "m.dlc")
    (tensor,) = result.models[0].files[0].graph.inputs
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in qdq_conv().graph.initializer}
    node = next(n for n in qdq_conv().graph.node if n.op_type == "QuantizeLinear")
    assert (tensor.name, tensor.dtype) == ("x", "ufixed8")
    assert tensor.scale == pytest.approx(float(stored[node.input[1]]))
    assert tensor.zero_point == int(stored[node.input[2]])
    assert any("--io-quantization npu" in note for note in result.warnings)
    options = CompileOptions(io_quantization="npu")
    whole = compile_to_dlc([save(qdq_conv(), "n")], "SM8650", tmp_path / "n.dlc", options=options)
    graph = whole.models[0].files[0].graph
    assert [t.dtype for t in (*graph.inputs, *graph.outputs)] == ["float32", "float32"]
    assert whole.warnings == ()


def test_options_that_change_the_graph_do_so(save: Save, tmp_path: Path) -> None:
    model = save(lstm(), "m")
    for name, options in (
        ("plain", CompileOptions()),
        ("one", CompileOptions(more={"enable_htp_monolithic_lstm": "1"})),
    ):
        compile_to_dlc([model], "SM8650", tmp_path / f"{name}.dlc", options=options)
    plain, one = (inspect_dlc(tmp_path / f"{name}.dlc").contents[0].operators for name in ("plain", "one"))
    assert (plain["Lstm"], one["Lstm"]) == (3, 1)  # one a step, or one for all


# ── several graphs, and nodes that are in none ────────────────────────────────────────────────────────────


def test_several_graphs_are_refused_for_one_file(save: Save, tmp_path: Path) -> None:
    with pytest.raises(SeveralGraphs, match=r"falls into 2 graphs, and m\.dlc can hold one") as caught:
        compile_to_dlc([save(small.cut_by_erf(), "m")], "SM8650", tmp_path / "m.dlc")
    assert "Erf `the_erf`" in caught.value.why
    assert files(tmp_path) == {"m.onnx"}


def test_several_graphs_are_several_files_of_a_folder(save: Save, tmp_path: Path) -> None:
    out = tmp_path / "out"
    models = [save(small.cut_by_erf(), "cut"), save(small.conv_relu(), "conv")]
    result = compile_to_dlc(models, "SM8650", out)
    assert files(out) == {"cut.0.dlc", "cut.1.dlc", "conv.dlc"}
    cut = result.models[0]
    ends = [([t.name for t in f.graph.inputs], [t.name for t in f.graph.outputs]) for f in cut.files]
    assert ends == [(["x"], ["a"]), (["b"], ["y"])]
    assert [node.name for node in cut.verdict.cpu_nodes] == ["the_erf"]
    assert not result.full
    assert result.meets("60")
    assert not result.meets("full")


def test_what_is_in_no_dlc_is_said_and_counts(save: Save, tmp_path: Path) -> None:
    done = hexport(
        "compile", save(small.cut_by_erf(), "m"), "--target", 57, "--format", "dlc", "-o", tmp_path / "out",
        "--require", "full",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "what is in no DLC" in done.stdout
    assert "the_erf" in done.stdout
    assert "FAILED: --require full" in done.stdout


def test_nothing_for_the_npu_is_no_dlc(save: Save, tmp_path: Path) -> None:
    node = helper.make_node("Erf", ["x"], ["y"], name="erf")
    model = save(small.model([node], [small.value("x", [4])], [small.value("y", [4])]), "m")
    with pytest.raises(NothingCompiled, match="nothing of"):
        compile_to_dlc([model], "SM8650", tmp_path / "m.dlc")
    assert files(tmp_path) == {"m.onnx"}


def test_the_other_release(save: Save, tmp_path: Path, older: Toolchain) -> None:
    model = save(small.cut_by_erf(), "m")
    with using(older.name):
        result = compile_to_dlc([model], "SM8650", tmp_path / "out")
        expected = facts.sdk_of(facts.installed_release() or "")
    found = [inspect_dlc(file.path) for file in result.models[0].files]
    assert [dlc.sdk.startswith(f"{expected}.") for dlc in found] == [True, True]
    assert [[t.name for t in dlc.contents[0].outputs] for dlc in found] == [["a"], ["y"]]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (CompileOptions(vtcm_mb=8), "--vtcm"),
        (CompileOptions(finalization=3), "--finalization"),
        (CompileOptions(fp16=True), "--fp16"),
        (CompileOptions(priority="high"), "--priority"),
        (CompileOptions(prepare_only=True), "--prepare-only"),
        (CompileOptions(more={"htp_performance_mode": "burst"}), "--option htp_performance_mode"),
        (CompileOptions(more={"qnn_saver_path": "x"}), "debug record"),
        (CompileOptions(more={"dump_qnn_ir_dlc": "1"}), "--format dlc"),
    ],
)
def test_options_without_meaning_are_refused(options: CompileOptions, named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        compile_to_dlc([tmp_path / "not looked at.onnx"], "SM8650", tmp_path / "m.dlc", options=options)
    assert named in f"{caught.value.what} {caught.value.next}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "dlc", "--embed"], "--embed has no meaning for a DLC"),
        (["--format", "dlc", "--share-weights"], "--share-weights has no meaning for a DLC"),
        (["--format", "dlc", "--multi-soc"], "--multi-soc has no meaning for a DLC"),
        (["--format", "dlc", "--target", "60"], "so give one"),
        ([], "add --format dlc"),
    ],
)
def test_flags_without_meaning_are_refused(
    arguments: list[str], said: str, save: Save, tmp_path: Path
) -> None:
    model = save(small.conv_relu(), "m")
    done = hexport("compile", model, "-o", tmp_path / "m.dlc", "--target", "57", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert files(tmp_path) == {"m.onnx"}


def test_two_models_are_not_one_file(save: Save, tmp_path: Path) -> None:
    models = [save(small.conv_relu(), name) for name in ("a", "b")]
    with pytest.raises(UsageError, match="is one file, and there are 2 models"):
        compile_to_dlc(models, "SM8650", tmp_path / "m.dlc")


def test_operator_packages_cannot_go_into_a_dlc(save: Save, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"")
    options = CompileOptions(more={"op_packages": f"Twice:{library}:provider:CPU"})
    with pytest.raises(InvalidOption, match="the IR backend cannot register them"):
        compile_to_dlc([save(small.conv_relu(), "m")], "SM8650", tmp_path / "m.dlc", options=options)


def other_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4


def other_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = "z"


@pytest.mark.parametrize(
    ("change", "said"),
    [(other_shape, "input 'x'"), (other_output, "output 'z': the DLC has it")],
)
def test_a_dlc_of_another_model_is_not_handed_out(
    change: Callable[[onnx.ModelProto], None],
    said: str,
    save: Save,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider is given one model, and hexport looks for another."""
    changed = small.conv_relu()
    change(changed)
    if change is other_shape:
        weight = np.ones((8, 4, 3, 3), np.float32)
        changed.graph.initializer[0].CopyFrom(small.constant("w", weight))
    wrong = small.save(changed, tmp_path / "wrong.onnx")

    def stage_wrong(*args: Any) -> StagedModel:
        staged = stage(*args)
        for file in (staged.model, staged.exposed):
            file.write_bytes(wrong.read_bytes())
        return staged

    monkeypatch.setattr("hexport.compiling.dlc.stage", stage_wrong)
    with pytest.raises(CompiledOtherwise) as caught:
        compile_to_dlc([save(small.conv_relu(), "m")], "SM8650", tmp_path / "m.dlc")
    assert said in caught.value.why
    assert not (tmp_path / "m.dlc").exists()


def test_a_file_that_is_there_stays_when_it_fails(save: Save, tmp_path: Path) -> None:
    (tmp_path / "m.dlc").write_bytes(b"before")
    with pytest.raises(HexportError):
        compile_to_dlc([save(small.cut_by_erf(), "m")], "SM8650", tmp_path / "m.dlc")
    assert (tmp_path / "m.dlc").read_bytes() == b"before"


def test_json(save: Save, tmp_path: Path) -> None:
    done = hexport(
        "compile", save(small.conv_relu("N"), "m"), "--dim", "N=2", "--target", "57", "--format", "dlc",
        "-o", tmp_path / "m.dlc", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["schema_version"], document["format"], document["target"]) == (1, "dlc", "SM8650")
    (model,) = document["models"]
    (file,) = model["files"]
    assert (file["path"], file["size"]) == (str(tmp_path / "m.dlc"), (tmp_path / "m.dlc").stat().st_size)
    assert file["inputs"][0] == {
        "name": "x", "dtype": "float32", "dims": [2, 3, 16, 16], "scale": None, "zero_point": None,
    }  # fmt: skip
    assert model["input_shapes"] == {"x": [2, 3, 16, 16]}
    assert model["nodes"] == {"npu": 2, "cpu": 0}


def test_integer_outputs_have_their_types(save: Save, tmp_path: Path) -> None:
    model = small.model(
        [
            helper.make_node("Relu", ["x"], ["r"], name="relu"),
            helper.make_node("ArgMax", ["r"], ["a"], name="argmax", axis=1, keepdims=1),
            helper.make_node("Cast", ["a"], ["y"], name="cast", to=TensorProto.INT32),
        ],
        [small.value("x", [4, 16])],
        [small.value("y", [4, 1], TensorProto.INT32)],
    )
    result = compile_to_dlc([save(model, "m")], "SM8650", tmp_path / "m.dlc")
    (graph,) = result.models[0].files[0].content.contents
    assert [(t.name, t.dtype, t.dims) for t in graph.outputs] == [("y", "int32", (4, 1))]
