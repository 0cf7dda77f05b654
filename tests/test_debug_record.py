"""``debug record`` against the real Saver backend: what is written, what is told, what is not handed out."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import failing_models as failing
import small_models as small
from hexport import facts
from hexport.backend.dumping import dump
from hexport.backend.failures import SaverOnlyRecords
from hexport.backend.options import InvalidOption
from hexport.backend.running import run_on_htp
from hexport.environments.choosing import using
from hexport.environments.record import Toolchain
from hexport.errors import UsageError
from hexport.faultfinding import bug_report
from hexport.faultfinding.bug_report import debug_record
from hexport.faultfinding.saver_dump import RecordingIncomplete, read_dump
from hexport.storage.installed import installed_version
from hexport.version import __version__
from older_toolchain import RELEASE

FILES = {"saver_output.c", "params.bin", "record.json"}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("recorded")
    model = small.save(small.cut_by_erf(), folder / "m.onnx")
    record = debug_record(model, output=folder / "out", target="SM8650")
    return SimpleNamespace(model=model, out=folder / "out", record=record)


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text("utf-8"))
    return found


# ── what is written ───────────────────────────────────────────────────────────────────────────────────────


def test_the_calls_and_their_data_are_whole(recorded: SimpleNamespace) -> None:
    assert files(recorded.out) == FILES
    assert files(recorded.out.parent) == {"m.onnx", "out"}
    program = (recorded.out / "saver_output.c").read_text()
    assert program.rstrip().endswith("}")
    # Both MatMuls have the same weights, and each graph has them to itself; nothing else is constant.
    weights = onnx.load(recorded.model).graph.initializer[0].raw_data
    copies, rest = divmod((recorded.out / "params.bin").stat().st_size, len(weights))
    assert copies >= 2
    assert rest == 0
    assert re.findall(r'graphCreate\(\w+, "(\w+)"', program) == list(recorded.record.graphs)
    assert recorded.record.calls["graphFinalize"] == len(recorded.record.graphs) == 2


def test_the_document_has_what_a_bug_report_is_asked_for(recorded: SimpleNamespace) -> None:
    found = document(recorded.out)
    release = facts.installed_release()
    assert found["model"] == {
        "name": "m.onnx",
        "bytes": recorded.model.stat().st_size,
        "sha256": hashlib.sha256(recorded.model.read_bytes()).hexdigest(),
    }
    assert found["target"] == {"name": "SM8650", "soc_model": 57, "htp_arch": 75}
    versions = found["versions"]
    assert (versions["hexport"], versions["onnxruntime_qnn"]) == (__version__, release)
    assert versions["onnxruntime"] == installed_version("onnxruntime")
    assert versions["qnn_sdk"] == facts.sdk_of(release or "")
    assert (found["options"]["backend_type"], found["options"]["soc_model"]) == ("htp", "57")
    assert found["input_shapes"] == {"x": [4, 16]}
    assert [node["name"] for node in found["cpu_nodes"]] == ["the_erf"]
    for file in found["files"]:
        content = (recorded.out / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert shlex.split(found["command"])[:4] == ["hexport", "debug", "record", str(recorded.model)]


def test_there_are_no_results_and_it_says_so(recorded: SimpleNamespace, tmp_path: Path) -> None:
    found = document(recorded.out)
    assert found["results"] is None
    assert "no results" in found["results_note"]
    # Nor can they be had by another way.
    with pytest.raises(SaverOnlyRecords):
        run_on_htp(
            recorded.model, [], facts.find_target("SM8650"), options={"qnn_saver_path": "libQnnSaver.so"}
        )


def test_the_command_makes_the_same_files(recorded: SimpleNamespace, tmp_path: Path) -> None:
    words = shlex.split(document(recorded.out)["command"])
    words[words.index("-o") + 1] = str(tmp_path / "again")
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "no results" in done.stdout
    assert "params.bin holds the weights" in done.stdout
    assert document(tmp_path / "again")["files"] == document(recorded.out)["files"]


def test_a_model_that_kills_the_simulator_is_recorded(tmp_path: Path) -> None:
    model = small.save(failing.killed_in_running(), tmp_path / "m.onnx")
    record = debug_record(model, output=tmp_path / "out", target="SM8650")
    assert len(record.graphs) == 1
    assert "LpPool" not in {node.op for node in record.verdict.cpu_nodes}


def test_the_other_release(tmp_path: Path, older: Toolchain) -> None:
    model = small.save(small.conv_relu("N"), tmp_path / "m.onnx")
    with using(older.name):
        record = debug_record(model, output=tmp_path / "out", target="SM8650", dims={"N": 1})
    assert files(tmp_path / "out") == FILES
    assert (record.versions.onnxruntime_qnn, record.versions.toolchain) == (RELEASE, older.name)
    assert record.command.endswith(f"--dim N=1 --toolchain {older.name}")


def test_json(tmp_path: Path) -> None:
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    words = ["debug", "record", model, "--target", "57", "-o", tmp_path / "out", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "hexport", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("folder") == str(tmp_path / "out")
    assert found == document(tmp_path / "out")


# ── what is not handed out ────────────────────────────────────────────────────────────────────────────────


def copied(recorded: SimpleNamespace, folder: Path) -> Path:
    for name in ("saver_output.c", "params.bin"):
        (folder / name).write_bytes((recorded.out / name).read_bytes())
    return folder


def test_a_whole_dump_passes(recorded: SimpleNamespace, tmp_path: Path) -> None:
    assert read_dump(copied(recorded, tmp_path), 2).graphs == recorded.record.graphs


@pytest.mark.parametrize("name", ["saver_output.c", "params.bin"])
def test_a_missing_or_empty_file_is_an_error(name: str, recorded: SimpleNamespace, tmp_path: Path) -> None:
    file = copied(recorded, tmp_path) / name
    file.write_bytes(b"")
    with pytest.raises(RecordingIncomplete):
        read_dump(tmp_path, 2)
    file.unlink()
    with pytest.raises(RecordingIncomplete, match="did not record everything"):
        read_dump(tmp_path, 2)


@given(part=st.floats(0, 0.999), name=st.sampled_from(["saver_output.c", "params.bin"]))
def test_a_dump_that_was_cut_off_anywhere_is_an_error(
    part: float, name: str, recorded: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = copied(recorded, tmp_path_factory.mktemp("cut"))
    whole = (folder / name).read_bytes().rstrip()
    (folder / name).write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(RecordingIncomplete):
        read_dump(folder, 2)


def test_another_number_of_graphs_is_an_error(recorded: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(RecordingIncomplete) as caught:
        read_dump(copied(recorded, tmp_path), 3)
    assert "the provider has 3" in caught.value.why


def test_an_incomplete_dump_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")

    def cut_off(*args: Any, **kwargs: Any) -> Any:
        evidence = dump(*args, **kwargs)
        with (args[2] / "saver_output" / "params.bin").open("r+b") as file:
            file.truncate(100)
        return evidence

    monkeypatch.setattr(bug_report, "dump", cut_off)
    with pytest.raises(RecordingIncomplete):
        debug_record(model, output=tmp_path / "out", target="SM8650")
    assert files(tmp_path) == {"m.onnx"}


def test_what_the_provider_cannot_record_leaves_nothing(tmp_path: Path) -> None:
    model = small.save(failing.refused_in_compiling(), tmp_path / "m.onnx")
    with pytest.raises(RecordingIncomplete) as caught:
        debug_record(model, output=tmp_path / "out", target="SM8650", native_log=tmp_path / "log")
    assert "MaxPool" in caught.value.why
    assert files(tmp_path) == {"m.onnx", "log"}


def test_nothing_for_the_npu_is_nothing_to_record(tmp_path: Path) -> None:
    node = helper.make_node("Erf", ["x"], ["y"], name="erf")
    model = small.save(
        small.model([node], [small.value("x", [4])], [small.value("y", [4])]), tmp_path / "m.onnx"
    )
    with pytest.raises(RecordingIncomplete, match="there is nothing to record") as caught:
        debug_record(model, output=tmp_path / "out", target="SM8650")
    assert "Erf `erf`" in caught.value.why


def test_a_folder_with_something_in_it_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="is there already"):
        debug_record(model, output=tmp_path / "out", target="SM8650")
    assert files(tmp_path / "out") == {"mine"}
    with pytest.raises(UsageError, match="there is no folder"):
        debug_record(model, output=tmp_path / "no" / "out", target="SM8650")


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"qnn_saver_path": "x"}, UsageError, "recording sets it itself"),
        ({"dump_qnn_ir_dlc": "1"}, UsageError, "recording sets it itself"),
        ({"no_such_thing": "1"}, InvalidOption, "there is no such provider option"),
    ],
)
def test_options_are_checked_first(
    options: dict[str, str], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        debug_record(tmp_path / "none.onnx", output=tmp_path / "out", target="SM8650", options=options)


def test_options_reach_the_recorder_and_the_document(tmp_path: Path) -> None:
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    affinity = tmp_path / "affinity.json"
    affinity.write_text('{"op_type": {"Relu": "cpu"}}')
    record = debug_record(
        model, output=tmp_path / "out", target="SM8650", options={"op_affinity": str(affinity)}
    )
    assert [node.op for node in record.verdict.cpu_nodes] == ["Relu"]
    assert document(tmp_path / "out")["options"]["op_affinity"] == str(affinity)
