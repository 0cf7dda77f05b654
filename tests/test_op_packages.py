"""Operators pinned, and operators from libraries: what is checked before native code, and what that says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import custom_op_libraries as custom
import small_models as small
from hexport.backend.custom_ops import CustomOpsUnusable, find_libraries
from hexport.backend.failures import BackendNotInitialised, ModelRejected
from hexport.backend.op_affinity import pinned_types
from hexport.backend.options import InvalidOption, validate_options
from hexport.compiling.dlc import compile_to_dlc
from hexport.compiling.options import CompileOptions
from hexport.compiling.verb import compile_models
from hexport.errors import UsageError
from hexport.faultfinding.bug_report import debug_record
from hexport.model.soundness import UnusableGraph
from hexport.observe.check import check

HERE = "linux-x86_64"
CPU_PIN = '{"op_type": {"Relu": "cpu"}}'
buildable = pytest.mark.skipif(not custom.CAN_BUILD, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("options", "op_affinity", "op_packages"):
        monkeypatch.setattr(f"hexport.backend.{module}.current_platform", lambda: HERE)


def problems(options: dict[str, str], release: str = "2.7.0", platform: str = HERE) -> str:
    with pytest.raises(InvalidOption) as caught:
        validate_options(options, release=release, platform=platform)
    return "\n".join(caught.value.problems)


# ── op_affinity ───────────────────────────────────────────────────────────────────────────────────────────


def pinned(text: str | bytes, folder: Path) -> dict[str, str]:
    file = folder / "affinity.json"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return {"op_affinity": str(file)}


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        (CPU_PIN, {"Relu": "cpu"}),
        ('{"op_type": {"Relu": ["HTP"], "Conv": "CPU"}}', {"Relu": "htp", "Conv": "cpu"}),
        ('// why\n{"op_type": /* here\n */ {"Relu": "cpu"}} // and there', {"Relu": "cpu"}),
        ('{"op_type": {"http://x/*y*/": "cpu"}}', {"http://x/*y*/": "cpu"}),
        (b"\xef\xbb\xbf" + CPU_PIN.encode(), {"Relu": "cpu"}),
    ],
)
def test_what_the_provider_reads_is_accepted(
    text: str | bytes, pins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = pinned(text, tmp_path)
    assert pinned_types(options["op_affinity"]) == pins
    monkeypatch.chdir(tmp_path)
    # A worker has another current folder.
    accepted = validate_options({"op_affinity": "affinity.json"}, release="2.7.0", platform=HERE)
    assert accepted == {"op_affinity": str(tmp_path / "affinity.json")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ('{"op_type": {"Relu": "cpu",}}', "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        (b"\xff\xfe\x00", "it is no text"),
        ("[]", 'it needs an object "op_type"'),
        ('{"op_type": ["Relu"]}', 'it needs an object "op_type"'),
        ('{"op_type": {"Relu": "cpu"}, "op_name": {}}', "'op_name' is not read"),
        ('{"op_type": {}}', "it pins nothing"),
        ('{"op_type": {"Relu": "cpu", "Relu": "htp"}}', "'Relu' is given twice"),
        ('{"op_type": {"Relu": []}}', "Relu: give one backend"),
        ('{"op_type": {"Relu": ["cpu", "htp"]}}', "Relu: give one backend"),
        ('{"op_type": {"Relu": 3}}', "Relu: give one backend"),
        ('{"op_type": {"Relu": "npu"}}', "the provider knows cpu, gpu, dsp, htp"),
        ('{"op_type": {"Relu": "gpu"}}', "this session can have it on htp or cpu"),
    ],
)
def test_files_that_would_not_do_what_they_say(text: str | bytes, said: str, tmp_path: Path) -> None:
    found = problems(pinned(text, tmp_path))
    assert found.startswith(f"op_affinity: {tmp_path / 'affinity.json'}: ")
    assert said in found


def test_pins_go_with_the_backend_of_the_session(tmp_path: Path) -> None:
    options = pinned('{"op_type": {"Relu": "gpu"}}', tmp_path)
    assert validate_options({**options, "backend_type": "gpu"}, release="2.7.0", platform=HERE)
    assert "No such file" in problems({"op_affinity": str(tmp_path / "none.json")})
    assert "came with onnxruntime-qnn 2.6.0" in problems(pinned(CPU_PIN, tmp_path), release="2.3.0")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    )
)
def test_any_other_json_is_a_problem_and_no_crash(document: object) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert "op_affinity: " in problems(pinned(json.dumps({"x": document}), Path(folder)))


def test_pins_reach_the_provider_and_slips_are_said(tmp_path: Path) -> None:
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    options = CompileOptions(more=pinned('{"op_type": {"Relu": "cpu", "Rlu": "cpu"}}', tmp_path))
    result = compile_models([model], ["SM8650"], tmp_path / "out", options=options)
    assert [node.name for node in result.models[0].verdict.cpu_nodes] == ["relu"]
    assert "op_affinity pins Rlu, and no model has such a node" in result.warnings


# ── op_packages ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "libops.so"
    file.write_bytes(b"\x7fELF")
    return file


def test_a_list_comes_back_as_the_provider_reads_it(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(library.parent)
    given_list = " A : libops.so:makeA:CPU , B:libops.so:makeB:CPU"
    accepted = validate_options({"op_packages": given_list}, release="2.7.0", platform=HERE)
    assert accepted["op_packages"] == f"A:{library}:makeA:CPU,B:{library}:makeB:CPU"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("A:{library}", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        ("A:{library}:", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        (":{library}:make", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        ("A::make", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        ("A:{library}:make:CPU:more", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        ("A:{library}:make:CPU,", "is not OPERATOR:LIBRARY:SYMBOL[:TARGET]"),
        ("A:{library}.not:make:CPU", "there is no library"),
        ("A:{library}:make", "end it with :CPU"),
        ("A:{library}:make:HTP", "end it with :CPU"),
        ("A:{library}:make:DSP", "it takes CPU, HTP"),
        ("A:{library}:make:CPU,A:{library}:other:CPU", "A has two libraries for CPU"),
    ],
)
def test_lists_that_the_provider_would_skip_or_fail_on(entry: str, said: str, library: Path) -> None:
    assert said in problems({"op_packages": entry.format(library=library)})


def test_paths_that_the_provider_would_cut(tmp_path: Path) -> None:
    for name in ("a,b", "a:b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lib.so").write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "a:b")
        assert "a comma or colon" in problems({"op_packages": "A:lib.so:make:CPU"})
        patch.chdir(tmp_path / "a,b")
        assert "a comma or colon" in problems({"op_packages": "A:lib.so:make:CPU"})


def test_drives_of_windows_are_part_of_the_path() -> None:
    options = {"op_packages": r"A:C:\ops\lib.dll:make:HTP,B:D:/ops/lib.dll:make"}
    assert validate_options(options, release="2.7.0", platform="windows-arm64") == options
    assert "2.3.0 cannot read the drive" in problems(options, release="2.3.0", platform="windows-arm64")
    assert "is not OPERATOR" in problems({"op_packages": r"A:C:\ops\lib.dll"}, platform="windows-arm64")


@buildable
def test_a_library_that_is_no_package_is_the_provider_s_own_error(tmp_path: Path) -> None:
    """It would leave every node on the CPU, in a session that looks sound."""
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    wrong = custom.build(custom.NOTHING, tmp_path, "nothing")
    options = CompileOptions(more={"op_packages": f"Relu:{wrong}:makeRelu:CPU"})
    with pytest.raises(BackendNotInitialised, match="nothing was compiled") as caught:
        compile_models([model], ["SM8650"], tmp_path / "out", options=options)
    assert "OP_PACKAGE_NOT_FOUND" in caught.value.why
    assert any(str(wrong) in line for line in caught.value.native_log)
    assert not (tmp_path / "out").exists()


# ── libraries of ONNX Runtime ─────────────────────────────────────────────────────────────────────────────


@buildable
def test_a_model_with_an_operator_of_its_own_is_compiled(tmp_path: Path) -> None:
    model = small.save(custom.with_twice(), tmp_path / "m.onnx")
    twice = custom.build(custom.TWICE, tmp_path, "twice")
    result = compile_models([model], ["SM8650"], tmp_path / "out", custom_ops=[twice])
    (compiled,) = result.models
    assert [(node.name, node.cause) for node in compiled.verdict.cpu_nodes] == [("twice", "custom-op")]
    assert compiled.verdict.nodes.npu == 1
    assert any("register the library" in note for note in result.warnings)
    # The operator is in the compiled model, and runs with the library.
    assert [n.op_type for n in onnx.load(compiled.path).graph.node] == ["EPContext", "Twice"]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(twice))
    plain = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    weight = onnx.numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    np.testing.assert_allclose(plain.run(None, {"x": x})[0], 2 * (x @ weight), rtol=1e-5)


@buildable
def test_it_is_checked_too(tmp_path: Path) -> None:
    model = small.save(custom.with_twice(), tmp_path / "m.onnx")
    twice = custom.build(custom.TWICE, tmp_path, "twice")
    verdict = check(model, target="SM8650", custom_ops=[twice], options={"vtcm_mb": "4"})
    assert [(node.name, node.cause) for node in verdict.cpu_nodes] == [("twice", "custom-op")]
    with pytest.raises(InvalidOption, match="vtcm"):
        check(model, target="SM8650", custom_ops=[twice], options={"vtcm": "4"})
    with pytest.raises(UsageError, match="check sets it itself"):
        check(model, target="SM8650", options={"soc_model": "57"})


@buildable
def test_it_is_exported_and_recorded_too(tmp_path: Path) -> None:
    model = small.save(custom.with_twice(), tmp_path / "m.onnx")
    twice = custom.build(custom.TWICE, tmp_path, "twice")
    exported = compile_to_dlc([model], "SM8650", tmp_path / "m.dlc", custom_ops=[twice])
    (file,) = exported.models[0].files
    assert [tensor.name for tensor in file.graph.outputs] == ["m"]
    record = debug_record(model, output=tmp_path / "record", target="SM8650", custom_ops=[twice])
    assert [entry.name for entry in record.custom_ops] == [twice.name]


def test_without_its_library_the_model_is_refused_with_the_way_out(tmp_path: Path) -> None:
    model = small.save(custom.with_twice(), tmp_path / "m.onnx")
    with pytest.raises(UnusableGraph, match=r"test\.hexport::Twice") as caught:
        compile_models([model], ["SM8650"], tmp_path / "out")
    assert "--custom-ops" in caught.value.next


@buildable
@pytest.mark.parametrize(
    ("code", "why"), [(custom.NOTHING, "RegisterCustomOps"), (custom.CRASHING, "crashed"), (None, "")]
)
def test_a_wrong_library_is_an_error_and_no_crash(code: str | None, why: str, tmp_path: Path) -> None:
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    wrong = custom.build(code, tmp_path, "wrong") if code else model
    runs: list[Callable[[], object]] = [
        lambda: compile_models([model], ["SM8650"], tmp_path / "out", custom_ops=[wrong]),
        lambda: debug_record(model, output=tmp_path / "out", target="SM8650", custom_ops=[wrong]),
    ]
    for run in runs:
        with pytest.raises(CustomOpsUnusable) as caught:
            run()
        assert str(wrong) in caught.value.what
        assert why in caught.value.why
    assert not (tmp_path / "out").exists()


@buildable
def test_a_library_without_the_operator_is_not_enough(tmp_path: Path) -> None:
    other = custom.TWICE.replace('return "Twice"', 'return "Thrice"')
    model = small.save(custom.with_twice(), tmp_path / "m.onnx")
    library = custom.build(other, tmp_path, "thrice")
    with pytest.raises(ModelRejected, match="cannot load") as caught:
        compile_models([model], ["SM8650"], tmp_path / "out", custom_ops=[library])
    assert "Twice" in caught.value.why


def test_libraries_are_looked_for_first(library: Path, tmp_path: Path) -> None:
    assert find_libraries([library]) == (str(library),)
    with pytest.raises(UsageError, match="there is no such file"):
        find_libraries([tmp_path / "none.so"])
    with pytest.raises(UsageError, match="there is no such file"):
        find_libraries([tmp_path])
    with pytest.raises(UsageError, match="is given twice"):
        find_libraries([library, tmp_path / "." / library.name])
