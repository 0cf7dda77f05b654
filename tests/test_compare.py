"""``compare`` on the simulator: models and packages, sides that fail, and bad input.

Another compiler version takes an index and minutes, and is in ``test_compare_real.py``. Here this interpreter
by another name stands in for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hexport
import small_models as small
from hexport import facts
from hexport.backend.failures import RunFailed
from hexport.backend.probe import probe
from hexport.cli.compare import command
from hexport.comparison import measuring
from hexport.comparison.failures import NothingCompared
from hexport.comparison.tolerance import AS_GOOD_AS_EXACT_DB
from hexport.compiling.verb import compile_models
from hexport.environments.record import Toolchain, write_record
from hexport.environments.registry import record_path, set_default
from hexport.errors import HexportError
from hexport.storage.installed import installed_version
from hexport.toolchain import WorkerNotStarted, in_force
from verified_packages import build

pytestmark = [
    pytest.mark.usefixtures("cache", "data"),
    pytest.mark.skipif(not facts.simulates_npu(facts.current_platform()), reason="needs the simulator"),
]

CHIP = "SM8650"
PAIR = ("this", "mine")


def named(name: str, python: str) -> None:
    """A toolchain of that interpreter, without the verification that `add` does."""
    versions = {one: installed_version(one) for one in ("onnxruntime", "onnxruntime-qnn")}
    here = ".".join(map(str, sys.version_info[:3]))
    record_path(name).parent.mkdir(parents=True, exist_ok=True)
    write_record(record_path(name), Toolchain(name, python, here, facts.current_platform(), versions, ()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Toolchains: this interpreter as `mine`, and `dying` and `dead`, whose workers end at once."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEXPORT_DATA", str(folder))
        patch.delenv("HEXPORT_TOOLCHAIN", raising=False)
        script = folder / "python"
        script.write_text("#!/bin/sh\necho libQnnHtp.so is not there >&2\nexit 3\n")
        script.chmod(0o755)
        named("mine", sys.executable)
        for name in ("dying", "dead"):
            named(name, str(script))
        yield folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.save(small.conv_relu(), tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bucket, without what it was compiled from."""
    place = tmp_path_factory.mktemp("package")
    return build(place / "pkg", place / "work", [16], share=False, sources=False)


def run(*arguments: str | Path, code: int) -> Any:
    done = CliRunner().invoke(command, [*map(str, arguments), "--json"], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert done.return_value == code, done.output
    return json.loads(done.stdout)


def test_one_compiler_by_two_names_is_not_worse(model: Path) -> None:
    document = run(model, "--toolchain", "this", "--toolchain", "mine", "--target", CHIP, code=0)
    assert (document["passed"], document["worse"], document["target"]) == (True, [], CHIP)
    assert [document["sides"][side]["toolchain"] for side in "ab"] == list(PAIR)
    rows = {row["figure"]: row for row in document["rows"]}
    verdict = hexport.check(model, target=CHIP)
    assert verdict.ddr is not None
    # What check says of the model is what stands on both sides.
    same = {
        "works": True,
        "nodes_npu": verdict.nodes.npu,
        "nodes_cpu": 0,
        "macs_percent": 100.0,
        "partitions": 1,
        "precisions": verdict.precisions,
        "context_bytes": verdict.context_bytes,
        "ddr_bytes": verdict.ddr.read_total + verdict.ddr.write_total,
        "ddr_spilled_bytes": verdict.ddr.spill,
    }
    for figure, value in same.items():
        assert (rows[figure]["a"], rows[figure]["b"]) == (value, value), figure
    assert rows["context_bytes"]["ratio"] == 1
    assert rows["cpu_seconds"]["a"] > 0
    assert 45 < rows["sqnr:y"]["a"] == rows["sqnr:y"]["b"] < 120
    assert rows["sqnr_b_against_a"]["b"] == "exact"
    assert in_force() is None


def test_the_cpu_is_more_exact_than_the_npu(model: Path) -> None:
    found = hexport.compare(model, backends=("cpu", "simulator"), target=CHIP)
    assert [row.figure for row in found.worse] == ["sqnr:y"]
    assert found.row("nodes_npu").a.value is None
    assert not found.passed
    drop = AS_GOOD_AS_EXACT_DB - (found.row("sqnr:y").b.number or 0)
    assert hexport.compare(model, backends=("cpu", "htp"), target=CHIP, max_drop_db=drop + 0.1).passed
    assert hexport.compare(model, backends=("htp", "cpu"), target=CHIP).passed


def test_nodes_on_the_cpu_are_no_news_if_both_leave_them(tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    found = hexport.compare(path, toolchains=PAIR, target=CHIP)
    assert (found.row("nodes_cpu").a.value, found.row("partitions").b.value) == (1, 2)
    assert found.new_cpu_nodes == ()
    assert found.passed


def test_the_users_inputs_and_reference(model: Path, tmp_path: Path) -> None:
    original = small.save(small.conv_relu("batch"), tmp_path / "original.onnx")
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    found = hexport.compare(
        model, toolchains=PAIR, target=CHIP, reference=original, inputs=tmp_path / "in.npz", samples=1
    )
    assert (found.reference, found.samples, found.real_inputs) == (str(original), 1, True)
    # Without a file they are random, at the sizes asked for, and that is said.
    sized = hexport.compare(original, toolchains=PAIR, target=CHIP, dims={"batch": 2}, samples=1)
    assert sized.input_shapes == {"x": (2, 3, 16, 16)}
    assert any("random" in note for note in sized.notes)


@pytest.mark.parametrize("names", [("this", "dying"), ("dying", "this")])
def test_a_side_that_dies_is_a_result(model: Path, names: tuple[str, str]) -> None:
    arguments = [f"--toolchain={name}" for name in names]
    document = run(model, *arguments, "--target", CHIP, "--samples", "1", code=1)
    side = "ab"[names.index("dying")]
    error = document["sides"][side]["error"]
    assert error["code"] == WorkerNotStarted.code
    rows = {row["figure"]: row for row in document["rows"]}
    assert rows["works"][side] is False
    assert error["code"] in rows["works"]["notes"][side]
    assert rows["ddr_bytes"][side] is None
    assert rows["ddr_bytes"]["notes"][side]
    shown = CliRunner().invoke(
        command, [str(model), *arguments, "--target", CHIP, "--samples", "1"], standalone_mode=False
    )
    assert shown.return_value == 1
    assert "FAILED" in shown.output
    assert f"{side.upper()} failed with {error['code']}" in shown.output


def test_two_sides_that_die_are_an_error(model: Path) -> None:
    with pytest.raises(NothingCompared) as caught:
        hexport.compare(model, toolchains=("dying", "dead"), target=CHIP, samples=1)
    assert caught.value.why.count(WorkerNotStarted.code) == 2


def test_what_compiles_and_does_not_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, samples: Any = (), **named: Any) -> Any:
        if samples and in_force() is not None:
            raise RunFailed("the model could not be run")
        return probe(*arguments, samples=samples, **named)

    monkeypatch.setattr(measuring, "probe", failing)
    found = hexport.compare(model, toolchains=PAIR, target=CHIP, samples=1)
    assert [row.figure for row in found.worse] == ["works"]
    assert found.row("context_bytes").ratio == 1
    assert found.row("sqnr:y").b.value is None
    assert found.row("sqnr:y").b.note


def test_a_package_without_its_source(package: Path) -> None:
    found = hexport.compare(package, toolchains=PAIR, samples=1)
    assert found.passed
    assert (found.compiled, found.bucket, found.target) == ("models/cpu.onnx", "seq16", CHIP)
    assert any("does not hold the model that was compiled" in note for note in found.notes)
    loads, exact = found.row("packaged_loads"), found.row("packaged_sqnr")
    assert (loads.a.value, loads.b.value) == (True, True)
    assert exact.difference == 0


def test_a_package_whose_binary_no_simulator_loads(tmp_path: Path) -> None:
    shared = build(tmp_path / "pkg", tmp_path / "work", [8, 16], share=True)
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(0).normal(size=(1, 1, 5, 8)).astype(np.float32))
    found = hexport.compare(shared, toolchains=PAIR, bucket="seq16", inputs=tmp_path / "in.npz")
    assert found.compiled == "models/seq16.onnx"
    # Filled up from 5 and cut back: what is compared has the original's sizes.
    assert found.input_shapes == {"x": (1, 16, 8)}
    assert 45 < (found.row("sqnr:y").a.number or 0) < 120
    loads = found.row("packaged_loads")
    assert (loads.a.value, loads.b.value) == (None, None)
    assert "shares weights" in loads.a.note
    assert found.passed


def test_a_packaged_binary_that_one_side_does_not_load(package: Path) -> None:
    found = hexport.compare(package, toolchains=("this", "dying"), samples=1)
    loads = found.row("packaged_loads")
    assert (loads.a.value, loads.b.value) == (True, False)
    assert WorkerNotStarted.code in loads.b.note
    assert {row.figure for row in found.worse} == {"works", "packaged_loads"}


def test_backends_are_of_the_default_toolchain(model: Path) -> None:
    set_default("mine")
    try:
        document = run(
            model, "--backend", "htp", "--backend", "cpu", "--target", CHIP, "--samples", "1", code=0
        )
    finally:
        set_default(None)
    assert [document["sides"][side]["toolchain"] for side in "ab"] == ["mine", "mine"]
    assert [document["sides"][side]["backend"] for side in "ab"] == ["htp", "cpu"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--toolchain", "this", "--toolchain", "mine"],
        ["--toolchain", "this", "--toolchain", "no-such", "--target", CHIP],
        ["--toolchain", "this", "--target", CHIP],
        ["--target", CHIP],
        ["--backend", "htp", "--backend", "npu", "--target", CHIP],
        ["--backend", "cpu", "--backend", "qnn-cpu", "--target", CHIP],
        ["--toolchain", "this", "--toolchain", "mine", "--target", "SM0"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--max-more", "some"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--max-drop-db", "-1"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--bucket", "seq8"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--samples", "0"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--inputs", "nowhere.npz"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--reference", "nowhere.onnx"],
        ["--toolchain", "this", "--toolchain", "mine", "--target", CHIP, "--dim", "batch=1"],
    ],
    ids=" ".join,
)
def test_bad_input_is_an_error_before_anything_is_compiled(
    model: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was compiled")

    monkeypatch.setattr(measuring, "probe", never)
    with pytest.raises(HexportError) as caught:
        run(model, *arguments, code=0)
    assert caught.value.what


def test_what_cannot_be_compiled_again(model: Path, package: Path, tmp_path: Path) -> None:
    compile_models([model], [CHIP], tmp_path)
    (context,) = tmp_path.glob("*_ctx.onnx")
    with pytest.raises(HexportError, match="compiled already"):
        hexport.compare(context, toolchains=PAIR, target=CHIP)
    with pytest.raises(HexportError, match="--dim"):
        hexport.compare(package, toolchains=PAIR, dims={"seq": 4})
    with pytest.raises(HexportError, match="does not exist"):
        hexport.compare(tmp_path / "nowhere.onnx", toolchains=PAIR, target=CHIP)
