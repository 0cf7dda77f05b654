"""What ``compile`` refuses, what it does not hand out, and what is on disk after that."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import small_models as small
from hexport import HexportError
from hexport.backend.failures import WrongTarget
from hexport.backend.options import InvalidOption
from hexport.cli import main as cli
from hexport.compiling.options import CompileOptions
from hexport.compiling.publishing import publish
from hexport.compiling.refusals import AlreadyCompiled, CompiledOtherwise, NothingCompiled
from hexport.compiling.verb import compile_models
from hexport.errors import UsageError
from hexport.facts import UnknownTarget
from hexport.model import NotOnnx, UnreadableModel
from hexport.model.dims import DimsConflict, DimsNeeded
from test_context_binary import qdq_conv


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.save(qdq_conv(), tmp_path / "m.onnx")


def lose(monkeypatch: pytest.MonkeyPatch, *keys: str, **instead: str) -> None:
    """Options get lost between hexport and the compiler, as the provider itself does it."""
    right: Callable[..., dict[str, str]] = CompileOptions.provider

    def provider(self: CompileOptions, *args: Any, **kwargs: Any) -> dict[str, str]:
        options = {k: v for k, v in right(self, *args, **kwargs).items() if k not in keys}
        return {**options, **instead}

    monkeypatch.setattr(CompileOptions, "provider", provider)


# ── what came out is not what was asked for ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("instead", [{"soc_model": "SM9999"}, {"soc_model": "0", "htp_arch": "85"}])
def test_code_for_v68_instead_of_the_chip_is_not_handed_out(
    instead: dict[str, str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(monkeypatch, **instead)
    with pytest.raises(WrongTarget, match="asked for SoC 103, v85") as caught:
        compile_models([model], ["SM8975"], tmp_path / "out")
    assert caught.value.why.endswith("v68")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("key", "options", "says"),
    [
        ("vtcm_mb", CompileOptions(vtcm_mb=2), "vtcm_mb: 2 was asked for, .* has 4"),
        (
            "htp_graph_finalization_optimization_mode",
            CompileOptions(finalization=3),
            "finalization: 3 was asked for, .* has 0",
        ),
        ("offload_graph_io_quantization", CompileOptions(io_quantization="npu"), "on the CPU are .*Quantize"),
    ],
)
def test_an_option_that_is_lost_on_the_way_is_noticed(
    key: str,
    options: CompileOptions,
    says: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose(monkeypatch, key)
    with pytest.raises(CompiledOtherwise) as caught:
        compile_models([model], [57], tmp_path / "out", options=options)
    assert caught.match("something else")
    assert re.search(says, caught.value.why)
    assert not (tmp_path / "out").exists()


def test_one_wrong_binary_of_several_withholds_them_all(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    compile_models([model], ["SM8650"], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    lose(monkeypatch, soc_model="57")
    with pytest.raises(WrongTarget):
        compile_models([model], ["SM8650", "QCM6490"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


# ── nothing for the NPU ───────────────────────────────────────────────────────────────────────────────────


def test_a_model_without_work_for_the_npu(tmp_path: Path) -> None:
    proto = small.model(
        [helper.make_node("Erf", ["x"], ["y"], name="the_erf")],
        [small.value("x", [4, 4])],
        [small.value("y", [4, 4])],
    )
    with pytest.raises(NothingCompiled, match="nothing of") as caught:
        compile_models([small.save(proto, tmp_path / "m.onnx")], [57], tmp_path / "out")
    assert "Erf `the_erf`: " in caught.value.why
    assert "prepare" in caught.value.next
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("multi", [False, True])
def test_a_float_model_on_a_chip_without_float(multi: bool, tmp_path: Path) -> None:
    chips = ["SM8650", "QCM6490"] if multi else ["QCM6490"]
    source = small.save(small.conv_relu(), tmp_path / "m.onnx")
    with pytest.raises(HexportError) as caught:
        compile_models([source], chips, tmp_path / "out", multi_soc=multi)
    assert "QCM6490 has no float" in caught.value.why
    assert "quantise" in caught.value.next


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_compiled_model_is_not_compiled_again(model: Path, tmp_path: Path) -> None:
    compiled = compile_models([model], [57], tmp_path / "out").models[0].path
    with pytest.raises(AlreadyCompiled, match="compiled already"):
        compile_models([compiled], ["SM8750"], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_bad_calls_are_refused_before_anything_is_compiled(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "M.onnx"
    other.parent.mkdir()
    shutil.copy(model, other)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    (tmp_path / "a_file").write_text("not a folder")
    dynamic = small.save(small.conv_relu("batch"), tmp_path / "dynamic.onnx")
    out = tmp_path / "out"
    calls: list[tuple[type[HexportError], tuple[Any, ...], dict[str, Any]]] = [
        (UnreadableModel, ([tmp_path / "none.onnx"], [57], out), {}),
        (NotOnnx, ([tmp_path / "broken.onnx"], [57], out), {}),
        (UsageError, ([], [57], out), {}),
        (UsageError, ([model], [], out), {}),
        (UnknownTarget, ([model], ["SM9999"], out), {}),
        (DimsNeeded, ([dynamic], [57], out), {}),
        (UsageError, ([model, other], [57], out), {}),
        (UsageError, ([model], [57], tmp_path / "a_file"), {}),
        (UsageError, ([model], [57], tmp_path / "a_file" / "below"), {}),
        (UsageError, ([model], [57], out), {"share_weights": True}),
        (UsageError, ([model], [57], out), {"multi_soc": True}),
        (DimsConflict, ([model, dynamic], [57], out), {"dims": {"batch": 1}}),
        (UsageError, ([model], [57], out), {"require": "most"}),
        (UsageError, ([model], [57], out), {"nhwc_inputs": ["z"]}),
        (InvalidOption, ([model], [57], out), {"options": CompileOptions(vtcm_mb=64)}),
        (InvalidOption, ([model], [57], out), {"options": CompileOptions(finalization=9)}),
        (InvalidOption, ([model], [57], out), {"options": CompileOptions(priority="urgent")}),
        (InvalidOption, ([model], [57], out), {"options": CompileOptions(more={"vtcm": "2"})}),
        (UsageError, ([model], [57], out), {"options": CompileOptions(io_quantization="gpu")}),
        (UsageError, ([model], [57], out), {"options": CompileOptions(more={"soc_model": "60"})}),
        (UsageError, ([model], [57], out), {"options": CompileOptions(vtcm_mb=2, more={"vtcm_mb": "4"})}),
    ]
    for kind, arguments, options in calls:
        with pytest.raises(kind) as caught:
            compile_models(*arguments, **options)
        assert caught.value.what
        assert not out.exists()


def test_sharing_goes_with_neither_embedding_nor_several_chips(model: Path, tmp_path: Path) -> None:
    other = small.save(qdq_conv(), tmp_path / "n.onnx")
    with pytest.raises(InvalidOption, match="would not do"):
        compile_models([model, other], [57], tmp_path / "out", share_weights=True, embed=True)
    with pytest.raises(UsageError, match="does not go with"):
        compile_models([model, other], [57, 60], tmp_path / "out", share_weights=True, multi_soc=True)


@pytest.mark.parametrize("proto", [small.cut_by_erf(), small.conv_relu()])
def test_channels_last_needs_channels(proto: onnx.ModelProto, tmp_path: Path) -> None:
    wrong = small.save(proto, tmp_path / "m.onnx")
    name = "x" if len(proto.graph.input[0].type.tensor_type.shape.dim) == 2 else "w"
    with pytest.raises(UsageError, match=f"--nhwc-input {name}"):
        compile_models([wrong], [57], tmp_path / "out", nhwc_inputs=[name])


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_full_disk_leaves_what_was_there(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    made.mkdir()
    out.mkdir()
    files = [made / name for name in ("a.bin", "a.onnx", "b.onnx")]
    for file in files:
        file.write_text("new")
    (out / "a.onnx").write_text("old")
    right, calls = shutil.move, iter(range(len(files)))

    def move(source: Path, target: Path) -> None:
        if next(calls) == failing:
            raise OSError(28, "No space left on device")
        right(source, target)

    monkeypatch.setattr(shutil, "move", move)
    with pytest.raises(UsageError, match="nothing can be written") as caught:
        publish(files[:1], files[1:], out)
    assert "No space left" in caught.value.why
    assert [(p.name, p.read_text()) for p in out.iterdir()] == [("a.onnx", "old")]


def test_a_folder_that_was_made_for_nothing_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "move", move)
    (tmp_path / "a.onnx").write_text("new")
    with pytest.raises(UsageError):
        publish([], [tmp_path / "a.onnx"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_what_a_killed_compile_left_in_the_folder_goes_with_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        "import os, shutil, signal, sys; from pathlib import Path\n"
        "from hexport.compiling.publishing import publish\n"
        "made, out = map(Path, sys.argv[1:]); move = shutil.move\n"
        "def killed(*files):\n    move(*files); os.kill(os.getpid(), signal.SIGKILL)\n"
        "shutil.move = killed; publish([made / 'a.bin'], [made / 'a.onnx'], out)"
    )
    made = tmp_path / "made"
    for _ in range(2):
        made.mkdir(exist_ok=True)
        for name in ("a.bin", "a.onnx"):
            (made / name).write_text("new")
        ended = subprocess.run([sys.executable, "-c", script, str(made), str(out)], check=False)
        assert ended.returncode == -signal.SIGKILL
        # One folder and its lock: the second process removed what the first had left.
        assert sorted(path.suffix for path in out.iterdir()) == ["", ".lock"]
    (made / "a.bin").write_text("new")
    (out / "users own").mkdir()
    publish([made / "a.bin"], [made / "a.onnx"], out)
    assert sorted(path.name for path in out.iterdir()) == ["a.bin", "a.onnx", "users own"]


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setitem(cli.VERBS, "compile", "")
    monkeypatch.setattr(sys, "argv", ["hexport", "compile", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = small.save(small.cut_by_erf(), tmp_path / "cut.onnx")
    where = ("-o", tmp_path / "out", "--target", "SM8650")
    assert run(monkeypatch, cut, *where, "--require", "full") == cli.EXIT_SHORT
    shown = capsys.readouterr().out
    assert "FAILED: --require full" in shown
    assert "`Erf` are not supported" in shown
    assert run(monkeypatch, cut, *where, "--require", "99", "--json") == cli.EXIT_OK
    document = json.loads(capsys.readouterr().out)
    assert [node["name"] for node in document["artefacts"][0]["models"][0]["cpu_nodes"]] == ["the_erf"]


def test_bad_input_ends_with_2_and_a_message(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-o", tmp_path / "out", "--target", "SM8650")
    for arguments, says in (
        ((tmp_path / "none.onnx", *where), "HX401"),
        ((model, "-o", tmp_path / "out", "--target", "SM9999"), "HX102"),
        ((model, *where, "--option", "nonsense=1"), "HX103"),
        ((model, *where, "--option", "nonsense"), "KEY=VALUE"),
        ((model, *where, "--finalization", "4"), "--finalization"),
        ((model, "-o", model, "--target", "SM8650"), "HX001"),
    ):
        assert run(monkeypatch, *arguments) == cli.EXIT_ERROR
        captured = capsys.readouterr()
        assert says in captured.err
        assert "Traceback" not in captured.err
    assert not (tmp_path / "out").exists()


def test_the_native_log_is_kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "native.txt"
    targets = ("--target", "SM8650", "--target", "QCM6490")
    assert run(monkeypatch, model, "-o", tmp_path / "out", *targets, "--native-log", log) == cli.EXIT_OK
    kept = log.read_text(errors="replace")
    titles = [line for line in kept.splitlines() if line.startswith("==== ")]
    assert titles == [f"==== {model} for SM8650", f"==== {model} for QCM6490"]
