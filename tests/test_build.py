"""``build``: from a model to a package, against the real compiler and simulator."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import hexport
import sized_models as sized
import small_models as small
from hexport.building.verb import Built, build
from hexport.building.wishes import SCHEMES
from hexport.cli.build import command
from hexport.errors import HexportError, UsageError
from hexport.packaging import open_package
from hexport.packaging.manifest import CONTEXT_BINARY, CONTEXT_MODEL, CPU_MODEL, MODEL_DATA, REPORT
from hexport.quantization import plan
from test_context_binary import qdq_conv

pytestmark = pytest.mark.usefixtures("cache")

TARGET = "SM8650"
NO_FLOAT = "SM7350"


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.save(small.conv_relu("batch"), tmp_path_factory.mktemp("model") / "conv.onnx")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sized.float_samples(tmp_path_factory.mktemp("samples") / "s.npz", 1, 3, 16, 16)


@pytest.fixture(scope="module")
def in_float(conv: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    output = tmp_path_factory.mktemp("float") / "pkg"
    return build(conv, output=output, targets=[TARGET, "SM8550"], dims={"batch": 1}, command=("first",))


def run(*arguments: object) -> tuple[int, str]:
    """The command's exit code and what it printed; errors of ours are 2 in ``main``."""
    done = CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)
    if isinstance(done.exception, HexportError):
        return 2, f"{done.exception.what} {done.exception.why} {done.exception.next}"
    assert done.exception is None, done.exception
    return done.return_value, done.output


def roles(built: Built, role: str) -> list[str]:
    return [one.path for one in built.manifest.artefacts if one.role == role]


def test_a_float_model_becomes_a_package_for_two_chips(in_float: Built, conv: Path) -> None:
    package = open_package(in_float.output)
    assert package.manifest == in_float.manifest
    assert in_float.met
    assert [(t.name, t.soc_model, t.htp_arch) for t in package.manifest.targets] == [
        ("SM8650", 57, 75),
        ("SM8550", 43, 73),
    ]
    for chip in ("SM8650", "SM8550"):
        for role in (CONTEXT_MODEL, CONTEXT_BINARY):
            assert any(path.startswith(f"{chip}/") for path in roles(in_float, role))
    assert roles(in_float, CPU_MODEL) == ["models/cpu.onnx"]
    assert (in_float.output / "models/cpu.onnx").read_bytes() == conv.read_bytes()
    assert {one.target for one in package.manifest.verification} == {"SM8650", "SM8550"}
    assert all(one.passed and one.outputs[0].sqnr_db > 40 for one in package.manifest.verification)
    assert any("fp16" in note for note in package.manifest.notes)
    assert any("random inputs" in note for note in package.manifest.notes)


def test_the_manifest_is_true(in_float: Built, conv: Path) -> None:
    manifest = in_float.manifest
    for one in manifest.artefacts:
        content = (in_float.output / one.path).read_bytes()
        assert (one.bytes, one.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert manifest.source.bytes == conv.stat().st_size
    assert manifest.source.sha256 == hashlib.sha256(conv.read_bytes()).hexdigest()
    assert manifest.contract.inputs[0].dims == ("batch", 3, 16, 16)
    assert manifest.contract.outputs[0].dims == ("batch", 8, 16, 16)
    (bucket,) = manifest.buckets
    assert bucket.dims == {"batch": 1}
    assert bucket.input_shapes == {"x": (1, 3, 16, 16)}
    assert bucket.output_shapes == {"y": (1, 8, 16, 16)}
    assert manifest.scheme == "fp16"
    assert manifest.toolchain.hexport == hexport.__version__
    assert manifest.toolchain.qnn_sdk
    assert in_float.package_bytes == sum(p.stat().st_size for p in in_float.output.rglob("*") if p.is_file())
    assert in_float.source_bytes == manifest.source.bytes


def test_no_path_of_this_machine_is_shipped(in_float: Built, cache: Path) -> None:
    (report,) = roles(in_float, REPORT)
    for name in (report, "hexport.json"):
        assert str(cache) not in (in_float.output / name).read_text("utf-8")


def test_the_same_build_again_comes_from_the_cache_byte_for_byte(in_float: Built, tmp_path: Path) -> None:
    model = Path(in_float.manifest.source.name)
    targets = [TARGET, "SM8550"]
    again = build(model, output=tmp_path / "p", targets=targets, dims={"batch": 1}, command=("2",))
    assert in_float.steps_made
    assert again.steps_made == {}
    assert sum(again.steps_taken.values()) == sum(in_float.steps_made.values()) + sum(
        in_float.steps_taken.values()
    )
    old, new = (json.loads((b.output / "hexport.json").read_bytes()) for b in (in_float, again))
    assert (old.pop("command"), new.pop("command")) == (["first"], ["2"])
    assert json.dumps(old) == json.dumps(new)
    assert again.seconds < in_float.seconds / 2


def test_the_json_document(conv: Path, tmp_path: Path) -> None:
    code, text = run(conv, "-o", tmp_path / "p", "--target", TARGET, "--dim", "batch=1", "--json")
    document = json.loads(text)
    assert code == 0
    assert document["schema_version"] == 1
    assert document["met"] is True
    assert document["targets"] == [TARGET]
    assert document["buckets"][0]["dims"] == {"batch": 1}
    assert {one["path"] for one in document["artefacts"]} | {"hexport.json"} == {
        path.relative_to(tmp_path / "p").as_posix() for path in (tmp_path / "p").rglob("*") if path.is_file()
    }
    assert document["cache"]["taken"]["compile"] == 1


def test_quantised_with_samples(conv: Path, samples: Path, tmp_path: Path) -> None:
    arguments = ["--dim", "batch=1", "--calib", samples, "--scheme", "8a8w", "--effort", "fast"]
    code, text = run(conv, "-o", tmp_path / "p", "--target", NO_FLOAT, *arguments, "--without-cpu-model")
    assert code == 0, text
    manifest = open_package(tmp_path / "p").manifest
    assert manifest.scheme == "8a8w"
    (verified,) = manifest.verification
    assert verified.outputs[0].sqnr_db > 20
    assert verified.samples == 2
    assert {one.role for one in manifest.artefacts} == {CONTEXT_MODEL, CONTEXT_BINARY, REPORT}

    # What cannot be reached is said, and the package is there all the same.
    arguments += ["--min-sqnr", "150"]
    code, text = run(conv, "-o", tmp_path / "q", "--target", NO_FLOAT, *arguments)
    assert code == 1
    assert "the best that was found has" in text
    assert "built, and verified" not in text
    short = open_package(tmp_path / "q").manifest
    assert [(one.passed, one.min_sqnr_db) for one in short.verification] == [(False, 150.0)]


class Asked(Exception):
    """A step that is made anew."""


def refuse(*_: object, **__: object) -> None:
    raise Asked


def test_a_measure_of_the_users_own_is_asked_every_time(
    conv: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"dims": {"batch": 1}, "scheme": "8a8w", "calib": samples, "effort": "fast"}
    build(conv, output=tmp_path / "p", targets=[NO_FLOAT], **asked)
    monkeypatch.setattr("hexport.quantization.verb.quantize", refuse)
    build(conv, output=tmp_path / "p", targets=[NO_FLOAT], **asked)
    with pytest.raises(Asked):
        build(conv, output=tmp_path / "p", targets=[NO_FLOAT], **asked, metric=refuse, max_drop=1.0)


def test_frozen_inputs_and_dims_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = small.model(
        [helper.make_node("Mul", ["x", "gain"], ["m"], name="mul"), helper.make_node("Relu", ["m"], ["y"])],
        [small.value("x", [None, 8]), small.value("gain", [1])],
        [small.value("y", [None, 8])],
    )
    path, gain = small.save(proto, tmp_path / "m.onnx"), tmp_path / "gain.npy"

    def made(value: float) -> Built:
        np.save(gain, np.array([value], np.float32))
        freeze = {"gain": f"@{gain}"}
        return build(path, output=tmp_path / "p", targets=[TARGET], dims={"x.0": 4}, freeze=freeze)

    built = made(2.5)
    contract = built.manifest.contract
    assert [(t.name, t.dims) for t in contract.inputs] == [("x", ("x.0", 8))]
    assert [(f.name, f.shape, f.values) for f in contract.frozen] == [("gain", (1,), (2.5,))]
    assert contract.outputs[0].dims == (None, 8)
    assert built.manifest.buckets[0].dims == {"x.0": 4}
    monkeypatch.setattr("hexport.building.preparing.prepare_into", refuse)
    assert made(2.5).steps_made == {}
    with pytest.raises(Asked):  # the same option with another number in the file is another model
        made(-1.5)


def test_weights_in_another_file_and_a_cache_that_may_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEXPORT_CACHE_GB", "0")
    folder = tmp_path / "model"
    folder.mkdir()
    # A name that torch gives and Windows does not take.
    path = small.external(small.conv_relu("batch"), folder, "onnx::Conv_1")
    built = build(path, output=tmp_path / "p", targets=[TARGET], buckets={"batch": [1, 2]})
    data = (folder / "onnx::Conv_1").read_bytes()
    assert built.source_bytes == path.stat().st_size + len(data)
    assert built.manifest.source.sha256 == hashlib.sha256(path.read_bytes() + data).hexdigest()
    assert [bucket.dims for bucket in open_package(built.output).manifest.buckets] == [
        {"batch": 1},
        {"batch": 2},
    ]
    # Its 864 bytes are few enough to go into the model itself.
    assert roles(built, MODEL_DATA) == []
    (weight,) = onnx.load(tmp_path / "p/models/cpu.onnx").graph.initializer
    assert weight.raw_data == data


def test_a_quantised_model_is_built_as_it_is(tmp_path: Path) -> None:
    path = small.save(qdq_conv(), tmp_path / "q.onnx")
    built = build(path, output=tmp_path / "p", targets=[NO_FLOAT])
    assert built.manifest.scheme == "8a8w"
    assert any("quantised already" in note for note in built.manifest.notes)
    assert built.met
    with pytest.raises(UsageError, match="quantised already"):
        build(path, output=tmp_path / "r", targets=[TARGET], scheme="16a8w")


def test_a_compiled_model_is_refused(in_float: Built, tmp_path: Path) -> None:
    path = in_float.output / roles(in_float, CONTEXT_MODEL)[0]
    code, text = run(path, "-o", tmp_path / "p", "--target", TARGET)
    assert code == 2
    assert "compiled already" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "SM0000"], "SM0000"),
        (["--target", TARGET, "--target", NO_FLOAT], f"{NO_FLOAT} has no float"),
        (["--target", NO_FLOAT, "--scheme", "fp16", "--calib", "SAMPLES"], f"{NO_FLOAT} has no float"),
        (["--target", TARGET, "--scheme", "9a9w"], "no such scheme"),
        (["--target", TARGET, "--scheme", "8a8w"], "needs calibration data"),
        (["--target", TARGET, "--keep-float", "Conv"], "--keep-float is of the quantiser"),
        (["--target", TARGET, "--bucket", "length=1,2"], "no such dynamic dim"),
        (["--target", TARGET, "--bucket", "batch=1,2", "--dim", "batch=1"], "contradict"),
        (["--target", TARGET, "--bucket", "batch=0"], "1 or more"),
        (["--target", TARGET, "--bucket", f"batch={','.join(map(str, range(1, 70)))}"], "69 combinations"),
        (["--target", TARGET, "--bucket", "batch=1,2", "--input-shape", "x=1,3,16,16"], "--bucket varies"),
        (["--target", TARGET, "--bucket", "batch=1,2", "--freeze", "x=1"], "contradict"),
        (["--target", TARGET, "--bucket", "auto"], "auto needs samples"),
        (["--target", TARGET, "--bucket", "auto", "--calib", "SAMPLES"], "nothing to propose"),
        (["--target", TARGET, "--bucket", "batch=1,2", "--pad", "z=1"], "no such input"),
        (["--target", TARGET, "--bucket", "batch=1,2", "--pad", "x=nan"], "no number that float32 holds"),
        (["--target", TARGET, "--dim", "batch=1", "--pad", "x=1"], "nothing of it is filled up"),
        (["--target", TARGET], "batch"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_any_work(
    arguments: list[str], said: str, conv: Path, samples: Path, tmp_path: Path
) -> None:
    words = [str(samples) if word == "SAMPLES" else word for word in arguments]
    code, text = run(conv, "-o", tmp_path / "p", *words)
    assert code == 2
    assert said in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--bucket", "batch"], ["--bucket", "batch=²"], ["--pad", "x=much"]])
def test_words_that_are_no_sizes_or_numbers(words: list[str], conv: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(conv), "-o", str(tmp_path / "p"), "--target", TARGET, *words])
    assert done.exit_code == 2
    assert "is not" in done.output


def test_a_folder_that_holds_something_else_stays(conv: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    code, text = run(conv, "-o", tmp_path, "--target", TARGET, "--dim", "batch=1")
    assert code == 2
    assert "thesis.txt" in text
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_is_known_without_loading_its_room_is_what_the_room_says() -> None:
    assert set(SCHEMES) == set(plan.SCHEMES)


def test_an_output_that_is_declared_wrongly_is_told_and_left_open(tmp_path: Path) -> None:
    """As exporters write it that lost track of a shape; onnxruntime runs such a model, with a warning."""
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Gather", ["all", "places"], ["wanted"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "wanted"], ["y"]),
    ]
    proto = small.model(
        nodes,
        [small.value("x", ["batch", 3, 16, 16])],
        [small.value("y", [1, "n"])],
        [small.constant("places", np.array([0, 1, 3, 2]))],
    )
    path = small.save(proto, tmp_path / "declared.onnx")
    built = build(path, output=tmp_path / "pkg", targets=[TARGET], dims={"batch": 1})
    assert built.met, built.shortfalls
    assert any("declares y as 1×n and gives 1×3×16×16" in note for note in built.manifest.notes)
    (tensor,) = open_package(tmp_path / "pkg").manifest.contract.outputs
    assert tensor.dims is None
    with hexport.load(tmp_path / "pkg", backend="simulator") as session:
        x = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.maximum(x, 0), atol=5e-3)
