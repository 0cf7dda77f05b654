"""``verify`` on real packages and models, on the simulator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from hexport.backend.calling import PROVIDER
from hexport.backend.requests import AssignedNode, AssignedPart
from hexport.backend.running import Results
from hexport.cli.verify import command
from hexport.compiling.verb import compile_models
from hexport.errors import BadSamples, HexportError, UsageError
from hexport.facts import find_target
from hexport.packaging.failures import PackageTampered
from hexport.packaging.manifest import Contract, Crop
from hexport.verification.failures import NotVerifiable
from hexport.verification.measuring import compare_on
from hexport.verification.subject import describe
from hexport.verification.verb import verify
from made_packages import edit
from small_models import conv_relu
from verified_packages import GAIN, build, expected, rows, saved

pytestmark = pytest.mark.usefixtures("cache")

CHIP = "SM8650"


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bucket, seq=16, whose binary the simulator loads."""
    place = tmp_path_factory.mktemp("single")
    return build(place / "pkg", place / "work", [16], share=False, sources=False)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two buckets in one binary, which it does not load."""
    place = tmp_path_factory.mktemp("shared")
    return build(place / "pkg", place / "work", [8, 16], share=True)


def samples(path: Path, seq: int = 16, count: int = 2, **more: np.ndarray) -> Path:
    x = np.random.default_rng(1).normal(size=(count, 1, seq, 8)).astype(np.float32)
    np.savez(path, **{"x": x, **more})
    return path


def test_a_package_against_its_own_cpu_model(single: Path, tmp_path: Path) -> None:
    file = samples(tmp_path / "in.npz")
    match = verify(single, inputs=file)
    assert (match.passed, match.target, match.bucket, match.samples) == (True, CHIP, "seq16", 2)
    assert match.ran.endswith("_ctx.onnx")
    assert match.npu_nodes > 0
    assert (match.real_inputs, match.notes, match.true_dims) == (True, (), {})
    # fp16 has eleven bits: close to the float result, and not equal to it.
    (found,) = match.outputs
    assert 45 < found.sqnr_db < 120
    x = np.load(file)["x"]
    assert found.worst is not None
    where = (found.worst.sample, *found.worst.index)
    assert found.worst.expected == pytest.approx(float(expected(x)[where]), rel=1e-5)
    assert abs(found.worst.got - found.worst.expected) == pytest.approx(found.max_abs_error)
    document = json.loads(json.dumps(match.to_json(), allow_nan=False))
    assert (document["schema_version"], document["passed"]) == (1, True)
    # What the manifest says the build asked for.
    assert document["required"]["min_sqnr_db"] == 45


def test_smaller_inputs_are_filled_up_and_cut_back(single: Path, tmp_path: Path) -> None:
    match = verify(single, inputs=samples(tmp_path / "in.npz", seq=5))
    assert match.passed
    assert match.true_dims == {"seq": 5}
    assert match.outputs[0].worst is not None
    assert match.outputs[0].worst.index[1] < 5


def test_the_frozen_value_of_the_manifest_is_fed_to_the_reference(single: Path, tmp_path: Path) -> None:
    assert verify(single, reference=saved(rows("seq"), tmp_path / "rows.onnx"), samples=1).passed
    # A package whose manifest says another value than the one that was compiled in is found out.
    other = tmp_path / "other"
    shutil.copytree(single, other)
    edit(other, lambda document: document["contract"]["frozen"][0].update(values=[3 * GAIN]))
    match = verify(other, reference=tmp_path / "rows.onnx", samples=1)
    assert not match.passed
    assert match.outputs[0].sqnr_db < 5


def test_another_model_is_found_out(single: Path, tmp_path: Path) -> None:
    proto = rows("seq")
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weight[3, 1] += 1
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    match = verify(single, reference=saved(proto, tmp_path / "m.onnx"), min_sqnr=30)
    assert not match.passed
    assert match.outputs[0].worst is not None
    assert match.outputs[0].worst.index[2] == 1
    assert "random" in match.notes[0]


def test_what_the_simulator_cannot_load_is_run_from_its_source_and_said(shared: Path, tmp_path: Path) -> None:
    match = verify(shared, inputs=samples(tmp_path / "in.npz", seq=5))
    assert match.passed
    assert (match.bucket, match.ran) == ("seq8", "models/seq8.onnx")
    assert "shares weights" in match.notes[0]
    assert "seq16" in match.notes[1]
    assert verify(shared, inputs=tmp_path / "in.npz", bucket="seq16").bucket == "seq16"
    assert verify(shared, inputs=samples(tmp_path / "in.npz", seq=9)).bucket == "seq16"


def test_without_its_source_it_is_refused(single: Path, tmp_path: Path) -> None:
    several = tmp_path / "several"
    shutil.copytree(single, several)

    def change(document: dict[str, Any]) -> None:
        document["targets"].append({"name": "SM8550", "soc_model": 43, "htp_arch": 73})
        for artefact in document["artefacts"]:
            artefact["targets"] = [CHIP, "SM8550"] if artefact["role"].startswith("context") else []

    edit(several, change)
    with pytest.raises(NotVerifiable) as caught:
        verify(several)
    assert "several chips" in caught.value.why


def test_the_packages_cpu_model(single: Path, tmp_path: Path) -> None:
    match = verify(single, backend="cpu", reference=saved(rows("seq"), tmp_path / "m.onnx"), atol=0)
    assert match.passed
    assert (match.ran, match.target) == ("models/cpu.onnx", None)
    with pytest.raises(NotVerifiable):
        verify(single, backend="cpu")


def test_a_tampered_package_is_not_run(single: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(single, bad)
    binary = next(bad.rglob("*.bin"))
    data = bytearray(binary.read_bytes())
    data[len(data) // 2] ^= 1
    binary.write_bytes(data)
    with pytest.raises(PackageTampered):
        verify(bad)


def test_a_plain_model_against_itself_and_its_compiled_form(tmp_path: Path) -> None:
    plain = saved(conv_relu("batch"), tmp_path / "plain.onnx")
    x = np.random.default_rng(2).normal(size=(1, 1, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    match = verify(plain, target=CHIP, inputs=tmp_path / "in.npz", min_sqnr=45)
    assert match.passed
    assert match.npu_nodes > 0
    fixed = saved(conv_relu(1), tmp_path / "fixed.onnx")
    (tmp_path / "out").mkdir()
    made = compile_models([fixed], [CHIP], tmp_path / "out").models[0].path
    compiled = verify(made, reference=plain, inputs=tmp_path / "in.npz", min_sqnr=45)
    assert (compiled.passed, compiled.target) == (True, CHIP)
    assert compiled.outputs[0].sqnr_db == pytest.approx(match.outputs[0].sqnr_db, abs=3)
    with pytest.raises(UsageError, match="SM8550"):
        verify(made, reference=plain, target="SM8550")
    with pytest.raises(NotVerifiable, match="nothing to compare"):
        verify(made)
    with pytest.raises(NotVerifiable, match="does not run on the CPU"):
        verify(made, reference=plain, backend="cpu")


def test_what_ran_on_the_cpu_is_named() -> None:
    def part(provider: str, *ops: str) -> AssignedPart:
        return AssignedPart(provider, tuple(AssignedNode(f"n{i}", op, "") for i, op in enumerate(ops)))

    npu, cpu = part(PROVIDER, "EPContext"), part("CPUExecutionProvider", "QuantizeLinear", "Cast", "Cast")
    assert describe(Results((), (npu,), 0.0), "m", simulated=True) == (1, 0, [])
    taken, left, said = describe(Results((), (npu, cpu), 0.0), "m", simulated=True)
    assert (taken, left) == (1, 3)
    assert said == ["3 nodes of m ran on the CPU: 2 Cast, 1 QuantizeLinear"]


def test_a_binary_for_several_chips_is_not_taken_for_one(tmp_path: Path) -> None:
    plain = saved(conv_relu(1), tmp_path / "plain.onnx")
    made = compile_models([plain], [CHIP, "SM8550"], tmp_path / "out", multi_soc=True).models[0].path
    with pytest.raises(NotVerifiable) as caught:
        verify(made, reference=plain)
    assert "several chips" in caught.value.why
    # What its message says to do instead works.
    assert verify(plain, target="SM8550", samples=1, min_sqnr=45).passed


def test_compare_on_cuts_by_the_contract(tmp_path: Path) -> None:
    model = saved(rows(16, frozen=True), tmp_path / "m.onnx")
    x = np.random.default_rng(3).normal(size=(1, 16, 8)).astype(np.float32)
    reference = [{"y": expected(x)[:, :5]}]
    soc = find_target(CHIP)
    contract = Contract((), (), crops=(Crop("y", 1, "seq"),))
    (found,) = compare_on(model, reference, [{"x": x}], soc, contract=contract, dims={"seq": 5})
    assert found.sqnr_db > 45
    assert found.figure.max_abs_error == found.max_abs_error


def wrong(name: str, single: Path, place: Path) -> dict[str, Any]:
    model = saved(rows("seq"), place / "m.onnx")
    return {
        "backend": {"backend": "npu"},
        "target": {"target": "SM8550"},
        "bucket": {"bucket": "seq99"},
        "count": {"samples": 0},
        "sizes": {"dims": {"seq": 3}},
        "cpu target": {"backend": "cpu", "target": CHIP, "reference": model},
        "folder": {"reference": single},
        "compiled": {"reference": next(single.rglob("*_ctx.onnx"))},
        "no file": {"inputs": place / "not there.npz"},
        "no npz": {"inputs": model},
        "too large": {"inputs": samples(place / "in.npz", seq=17)},
        "missing": {"inputs": _saved(place, y=np.zeros((1, 2)))},
        "extra": {"inputs": samples(place / "in.npz", z=np.zeros((2, 2)))},
        "counts": {"inputs": samples(place / "in.npz", gain=np.full(3, GAIN, np.float32))},
        "frozen": {"inputs": samples(place / "in.npz", gain=np.zeros(2, np.float32))},
        "empty": {"inputs": samples(place / "in.npz", count=0)},
        "dtype": {"inputs": _saved(place, x=np.zeros((1, 1, 16, 8)))},
        "rank": {"inputs": _saved(place, x=np.zeros((1, 16, 8), np.float32))},
        "pickle": {"inputs": _saved(place, x=np.array([{}], object))},
        "other inputs": {"reference": saved(conv_relu(1), place / "conv.onnx")},
        "outputs": {"reference": saved(_renamed(rows("seq")), place / "renamed.onnx")},
    }[name]


def _saved(place: Path, **arrays: np.ndarray) -> Path:
    np.savez(place / "in.npz", **arrays)
    return place / "in.npz"


def _renamed(proto: onnx.ModelProto) -> onnx.ModelProto:
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = "other"
    return proto


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[(n, UsageError) for n in ("backend", "target", "bucket", "count", "sizes", "cpu target")],
        *[(n, UsageError) for n in ("folder", "compiled", "outputs")],
        *[
            (n, BadSamples)
            for n in ("no file", "no npz", "too large", "missing", "extra", "counts", "frozen")
        ],
        *[(n, BadSamples) for n in ("empty", "dtype", "rank", "pickle", "other inputs")],
    ],
)
def test_bad_input_is_refused(name: str, kind: type[HexportError], single: Path, tmp_path: Path) -> None:
    with pytest.raises(kind) as caught:
        verify(single, **wrong(name, single, tmp_path))
    assert caught.value.what


def test_a_frozen_input_may_come_along_with_its_value(single: Path, tmp_path: Path) -> None:
    file = samples(tmp_path / "in.npz", gain=np.full(2, GAIN, np.float32))
    match = verify(single, inputs=file, samples=1)
    assert match.passed
    assert match.notes == ("the first 1 of 2 samples are used",)


def test_a_model_without_sizes_or_chip_asks_for_them(tmp_path: Path) -> None:
    model = saved(rows("seq"), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="for which chip"):
        verify(model)
    with pytest.raises(HexportError) as caught:
        verify(model, target=CHIP)
    assert "--dim 'seq=" in caught.value.next
    assert verify(model, target=CHIP, dims={"seq": 3}, samples=1).passed


def test_outputs_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    proto = rows(4, frozen=True)
    proto.graph.node.append(onnx.helper.make_node("Cast", ["y"], ["text"], to=onnx.TensorProto.STRING))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("text", onnx.TensorProto.STRING, [1, 4, 4]))
    with pytest.raises(NotVerifiable, match="string"):
        verify(saved(proto, tmp_path / "m.onnx"), target=CHIP)


def test_the_command(single: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[object, str]:
        done = CliRunner().invoke(command, [str(single), *arguments], standalone_mode=False)
        assert done.exception is None, done.exception
        return done.return_value, done.stdout

    code, text = run("--inputs", str(samples(tmp_path / "in.npz")), "--atol", "0.1")
    assert code == 0
    assert text.splitlines()[-1].startswith("PASSED")
    code, text = run("--rtol", "1e-9", "--json")
    document = json.loads(text)
    assert (code, document["passed"], document["outputs"][0]["passed"]) == (1, False, False)
    # The tolerance that it names does pass.
    needed = document["outputs"][0]["atol_needed"]
    assert run("--rtol", "1e-9", "--atol", str(needed), "--json")[0] == 0
