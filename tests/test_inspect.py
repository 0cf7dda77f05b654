"""Looking into things: each kind is known by its content, and what is told of it is true."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import made_packages
import small_models
from hexport import HexportError
from hexport.backend.failures import ContextUnreadable
from hexport.backend.requests import SessionRequest
from hexport.cli.inspect import command
from hexport.inspection.failures import DamagedFile, NotInspectable
from hexport.inspection.verb import inspect
from hexport.packaging import pack
from hexport.packaging.failures import PackageTampered
from hexport.records import to_plain
from hexport.toolchain import Worker
from test_wrap import SCALES, ZERO, binary_in, compile_to, quantised
from tiny_pte import tiny_pte


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))


def told(thing: Path, kind: str) -> Any:
    """The document of one thing, which must be of that kind; the view is drawn, too."""
    done = CliRunner().invoke(command, [str(thing), "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    document = json.loads(done.output)
    assert (document["schema_version"], document["kind"]) == (1, kind)
    shown = CliRunner().invoke(command, [str(thing)], standalone_mode=False)
    assert shown.exception is None, shown.exception
    return document[kind] | {"shown": shown.output}


# ── ONNX ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_onnx_model(tmp_path: Path) -> None:
    found = told(small_models.save(small_models.conv_relu("N"), tmp_path / "m.onnx"), "onnx")
    assert found["operators"] == {"Conv": 1, "Relu": 1}
    assert (found["nodes"], found["opsets"], found["scheme"]) == (2, {"ai.onnx": 17}, "float")
    weights = 8 * 3 * 3 * 3 * 4
    assert (found["weight_bytes"], found["weights"]) == (weights, {"float32": weights})
    assert found["inputs"][0]["dims"] == ["N", 3, 16, 16]
    assert "float32[N,3,16,16]" in found["shown"]


def test_a_quantised_model_tells_its_scheme(tmp_path: Path) -> None:
    assert told(small_models.save(quantised(), tmp_path / "m.onnx"), "onnx")["scheme"] == "8a8w"
    proto = quantised()
    for tensor in proto.graph.initializer:
        if tensor.name == "zero":
            tensor.CopyFrom(small_models.constant("zero", np.asarray(np.uint16(ZERO))))
    assert told(small_models.save(proto, tmp_path / "n.onnx"), "onnx")["scheme"] == "16a16w"


def test_what_hexport_did_is_told(tmp_path: Path) -> None:
    proto = small_models.conv_relu()
    proto.metadata_props.add(key="hexport.prepared", value="9.9")
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    loop = helper.make_node("Loop", ["n", ""], [], name="kept", body=body)
    loop.metadata_props.add(key="hexport.pin", value="the NPU rounds it")
    other = helper.make_node("Relu", ["x"], ["z"], name="free")
    other.metadata_props.add(key="else", value="1")
    proto.graph.node.extend([other])
    from hexport.inspection.onnx_model import Pin, _pins, inspect_onnx
    from hexport.model.onnx_proto import message_class

    assert inspect_onnx(small_models.save(proto, tmp_path / "m.onnx")).hexport == {"prepared": "9.9"}
    proto.graph.node.extend([loop])
    raw = message_class("ModelProto").FromString(proto.SerializeToString())
    assert list(_pins(raw)) == [Pin("kept", "the NPU rounds it")]


def test_external_data_is_named(tmp_path: Path) -> None:
    path = small_models.external(small_models.conv_relu(), tmp_path)
    assert told(path, "onnx")["external_files"] == ["weights.bin"]


# ── Qualcomm's ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_context_and_the_model_that_calls_it(tmp_path: Path) -> None:
    (model,) = compile_to(tmp_path, quantised)
    binary = binary_in(tmp_path)
    (context,) = told(binary, "context_binary")["contexts"]
    assert (context["chip"], context["soc_model"], context["backend"]) == ("SM8650", 57, "HTP")
    (graph,) = context["graphs"]
    assert graph["inputs"][0]["scale"] == pytest.approx(SCALES["x"])
    assert graph["outputs"][0]["zero_point"] == ZERO
    found = told(model, "ep_context")
    (call,) = found["calls"]
    assert (call["graph"], call["binary"], call["embedded"]) == (graph["name"], binary.name, False)
    assert found["binary"]["contexts"] == [context]
    assert [name.split()[0] for name in found["cpu_nodes"]] == ["QuantizeLinear", "DequantizeLinear"]
    binary.rename(tmp_path / "away")
    assert "is not beside the model" in told(model, "ep_context")["missing"]


def test_a_model_that_names_a_file_elsewhere_has_it_left_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    node = helper.make_node(
        "EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0, ep_cache_context="../secret.bin"
    )
    proto = small_models.model([node], [small_models.value("x", [1])], [small_models.value("y", [1])])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = told(small_models.save(proto, tmp_path / "in" / "m.onnx"), "ep_context")
    assert "outside of the model's folder" in found["missing"]


def test_an_embedded_context_is_looked_into(tmp_path: Path) -> None:
    (model,) = compile_to(tmp_path, small_models.conv_relu)
    proto = onnx.load(model)
    for attribute in proto.graph.node[0].attribute:
        if attribute.name == "ep_cache_context":
            attribute.s = binary_in(tmp_path).read_bytes()
        if attribute.name == "embed_mode":
            attribute.i = 1
    found = told(small_models.save(proto, tmp_path / "embedded.onnx"), "ep_context")
    assert found["calls"][0]["embedded"]
    assert found["binary"]["contexts"][0]["soc_model"] == 57


@pytest.fixture(scope="module")
def dlc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one: the provider writes it beside its work when asked to."""
    folder = tmp_path_factory.mktemp("dlc")
    model = small_models.save(small_models.conv_relu(), folder / "m.onnx")
    options = {"backend_type": "htp", "soc_model": "57", "dump_qnn_ir_dlc": "1"}
    request = SessionRequest(str(model), "", {**options, "dump_qnn_ir_dlc_dir": str(folder)})
    with Worker("hexport.backend.jobs", folder / "native.log") as worker:
        worker.call("create_session", to_plain(request))
    (found,) = folder.glob("*.dlc")
    return found


def test_a_dlc(dlc: Path) -> None:
    found = told(dlc, "dlc")
    assert found["graphs"] == [dlc.stem]
    assert found["sdk"].startswith("2.")
    assert found["weight_bytes"] >= 8 * 3 * 3 * 3 * 4  # padded to whole lines
    assert found["caches"] == []
    assert {"model", "model.params.bin"} <= set(found["entries"])


def test_a_program_of_executorch(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(tiny_pte())
    found = told(tmp_path / "m.pte", "pte")
    (method,) = found["methods"]
    assert (found["identifier"], method["name"]) == ("ET12", "forward")
    assert [(t["dtype"], t["dims"]) for t in method["inputs"]] == [("float32", [2, 8]), ("float32", [2, 4])]
    assert [t["dims"] for t in method["outputs"]] == [[2, 4], []]
    assert method["delegates"] == {"XnnpackBackend": 1}
    assert method["operators"] == ["aten::sum.IntList_out"]
    assert "without executorch" in found["note"]


def test_a_pte_of_another_schema_is_named_and_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(tiny_pte().replace(b"ET12", b"ET99", 1))
    found = told(tmp_path / "m.pte", "pte")
    assert (found["identifier"], found["methods"]) == ("ET99", [])
    assert "not known here" in found["note"]


# ── packages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_package_and_a_packed_one(tmp_path: Path) -> None:
    package = made_packages.build(tmp_path / "pkg")
    found = told(package, "package")
    assert found["verified"]
    assert found["manifest"] == json.loads((package / "hexport.json").read_text("utf-8"))
    assert all(word in found["shown"] for word in ("seq=64", "41.5 dB", "SM8650", "16000", "1×64"))
    packed = told(pack(package, tmp_path / "p.zip"), "packed_package")
    assert (packed["manifest"], packed["verified"]) == (found["manifest"], False)
    (package / "report.json").write_bytes(b"[]\n")
    with pytest.raises(PackageTampered):
        inspect(package)


# ── what it is not ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 no zip", b"\x7fELF", b"\x89PNG\r\n"])
def test_what_is_not_known_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thing").write_bytes(content)
    with pytest.raises(NotInspectable):
        inspect(tmp_path / "thing")


def test_folders_pipes_and_gaps_are_said(tmp_path: Path) -> None:
    things = [tmp_path, tmp_path / "none"]
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        things.append(tmp_path / "pipe")
    for thing in things:
        with pytest.raises(NotInspectable):
            inspect(thing)


def test_a_zip_of_something_else_is_said(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(NotInspectable, match="no kind"):
        inspect(tmp_path / "x.zip")


def test_a_bin_that_is_no_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(os.urandom(5000))
    with pytest.raises(ContextUnreadable):
        inspect(tmp_path / "weights.bin")


def test_damaged_files_are_refused_and_harm_nobody(tmp_path: Path, dlc: Path) -> None:
    choose, ends = random.Random(3), set()
    for data, name in ((tiny_pte(), "m.pte"), (dlc.read_bytes(), "m.dlc")):
        for _ in range(150):
            mutant = bytearray(data[: choose.choice((len(data), choose.randrange(12, len(data))))])
            for _ in range(choose.choice((0, 1, 8, 64))):
                mutant[choose.randrange(len(mutant))] = choose.randrange(256)
            (tmp_path / name).write_bytes(mutant)
            try:
                inspect(tmp_path / name).to_json()
            except (NotInspectable, DamagedFile) as error:
                ends.add(type(error))
            except HexportError:
                pass  # the damage made it look like something else
    assert ends == {NotInspectable, DamagedFile}  # or the damage hit nothing


def test_inspecting_needs_the_core_install_only(tmp_path: Path) -> None:
    path = small_models.save(small_models.conv_relu(), tmp_path / "m.onnx")
    for name in ("onnx", "onnx_ir", "onnxscript", "onnxslim", "PIL", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not in the core install')\n")
    code = f"from hexport.inspection.verb import inspect; print(inspect({str(path)!r}).kind)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "onnx", done.stderr
