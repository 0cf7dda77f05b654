"""Running .pte files: right numbers on the simulator, and what cannot run says so before it is tried."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexport import HexportError, run
from hexport.environments.registry import record_path
from hexport.errors import UsageError
from hexport.executorch.pte.failures import ExecutorchMissing, PteNotRunnable
from hexport.executorch.pte.sidecar import BadSidecar
from hexport.inspection.failures import DamagedFile
from hexport.runtime.array_files import read_arrays
from hexport.runtime.failures import BadInput
from hexport.toolchain import Limits, WorkerError, WorkerTimeout
from pte_files import MadePtes, decibels, describe, ptes_fixture  # noqa: F401 - named ptes

FP16_DB, INT8_DB = 50.0, 30.0


def hexport(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [sys.executable, "-m", "hexport", *words], capture_output=True, text=True, check=False
    )


def saved(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def ran(ptes: MadePtes, name: str, tmp_path: Path, **how: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    file, out = saved(tmp_path / "in.npz", ptes.inputs(name)), tmp_path / "out.npz"
    done = run(ptes.path(name), inputs=file, output=out, **how)
    return read_arrays(out), done.notes


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("two", FP16_DB),
        ("integers", INT8_DB),
        ("crossed", FP16_DB),
        ("split", FP16_DB),
    ],
)
def test_it_computes_what_torch_does(ptes: MadePtes, name: str, least: float, tmp_path: Path) -> None:
    got, notes = ran(ptes, name, tmp_path)
    expected = ptes.expected(name)
    assert list(got) == list(expected)
    for output, array in expected.items():
        assert decibels(array, got[output]) > least, output
        assert got[output].dtype == array.dtype
    assert f"the simulator of SM8650 by executorch {ptes.toolchain.packages['executorch']}" in notes[0]
    assert ("1 operators on the CPU" in notes[0]) == (name == "split")


def test_without_a_part_for_the_npu_it_says_so(ptes: MadePtes, tmp_path: Path) -> None:
    """All on the CPU, with kernels that quantise, which nothing but hexport loads."""
    got, notes = ran(ptes, "cpu", tmp_path)
    np.testing.assert_allclose(got["output_0"], ptes.expected("cpu")["output_0"], atol=1e-5)
    assert "nothing of cpu.pte is for the NPU" in notes[0]


def test_names_come_from_the_description(ptes: MadePtes, tmp_path: Path) -> None:
    pte = shutil.copy(ptes.path("two"), tmp_path / "named.pte")
    inputs = dict(zip(("image", "bias"), ptes.inputs("two").values(), strict=True))
    outputs = dict(zip(("sum", "share"), ptes.expected("two").values(), strict=True))
    describe(Path(pte), inputs, outputs)
    file = saved(tmp_path / "in.npz", inputs)
    done = hexport("run", pte, "--inputs", file, "-o", tmp_path / "out.npz", "--json", "--bench", "--runs", 2)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["name"] for one in document["outputs"]] == ["sum", "share"]
    assert document["bench"]["median_ms"] > 0
    assert document["bench"]["runs"] == 2
    assert decibels(outputs["sum"], read_arrays(tmp_path / "out.npz")["sum"]) > FP16_DB
    with Path(pte).open("ab") as stream:  # it is another file now
        stream.write(b"\0")
    with pytest.raises(BadSidecar):
        run(pte, inputs=file)


def test_samples_and_sizes_that_may_vary(ptes: MadePtes, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(3, 5, 8)).astype(np.float32)
    out = tmp_path / "out.npz"
    run(ptes.path("bounded"), inputs=saved(tmp_path / "in.npz", {"input_0": given}), output=out, samples=True)
    stacked = read_arrays(out)["output_0"]
    assert stacked.shape == (3, 5, 8)
    run(ptes.path("bounded"), inputs=saved(tmp_path / "one.npz", {"input_0": given[1]}), output=out)
    np.testing.assert_array_equal(read_arrays(out)["output_0"], stacked[1])
    large = saved(tmp_path / "large.npz", {"input_0": np.ones((9, 8), np.float32)})
    with pytest.raises(BadInput, match=r"\[9, 8\]"):
        run(ptes.path("bounded"), inputs=large)


def test_a_list_of_raw_files_as_the_reference_runner_takes_it(ptes: MadePtes, tmp_path: Path) -> None:
    """The first line has torch's own inputs; files are beside the list, and outputs are raw as well."""
    x, y = ptes.inputs("two").values()
    for number, scale in enumerate((1.0, -0.5)):
        (x * np.float32(scale)).tofile(tmp_path / f"x_{number}.raw")
        (y * np.float32(scale)).tofile(tmp_path / f"y {number}.raw")
    listed = tmp_path / "list.txt"
    listed.write_text('# two pictures\n\nx_0.raw "y 0.raw"\ninput_1:="y 1.raw" input_0:=x_1.raw\n')
    done = hexport("run", ptes.path("two"), "--input-list", listed, "--output-folder", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"output_{line}_{index}.raw" for line in (0, 1) for index in (0, 1)]
    for index, array in enumerate(ptes.expected("two").values()):
        got = np.fromfile(tmp_path / "out" / f"output_0_{index}.raw", np.float32).reshape(array.shape)
        assert decibels(array, got) > FP16_DB
    first, second = ((tmp_path / "out" / f"output_{line}_0.raw").read_bytes() for line in (0, 1))
    assert first != second


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("online", {}, "online prepare"),
        ("slc", {}, "system level cache"),
        ("shared", {"method": "one"}, "share weights"),
        ("misread", {}, "ufixed8 to the graph, and float32 to the .pte"),
        ("channels_last", {}, "in the order [0, 2, 3, 1]"),
    ],
)
def test_what_the_file_itself_tells(ptes: MadePtes, name: str, how: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(PteNotRunnable) as raised:
        run(ptes.path(name), inputs=saved(tmp_path / "in.npz", ptes.inputs(name)), **how)
    assert said in raised.value.why


def test_what_does_not_fit_is_said_before_a_worker_starts(ptes: MadePtes, tmp_path: Path) -> None:
    pte, good = ptes.path("two"), ptes.inputs("two")
    file = saved(tmp_path / "in.npz", good)
    wrong: list[tuple[type[HexportError], dict[str, Any]]] = [
        (BadInput, {"inputs": saved(tmp_path / "a.npz", {"input_0": good["input_0"]})}),
        (BadInput, {"inputs": saved(tmp_path / "b.npz", good | {"input_1": good["input_1"].astype("f8")})}),
        (BadInput, {"inputs": saved(tmp_path / "c.npz", good | {"input_1": good["input_0"]})}),
        (BadInput, {"inputs": saved(tmp_path / "d.npz", good | {"more": good["input_0"]})}),
        (UsageError, {"inputs": file, "target": "SM8550"}),
        (UsageError, {"inputs": file, "backend": "cpu"}),
        (UsageError, {"inputs": file, "backend": "npu"}),
        (UsageError, {"inputs": file, "threads": 2, "bench": True}),
        (UsageError, {"inputs": file, "workers": 2}),
        (UsageError, {"inputs": file, "performance": "burst"}),
        (UsageError, {"inputs": file, "allow_cpu": False}),
        (UsageError, {"inputs": file, "method": "backward"}),
    ]
    for kind, how in wrong:
        # A worker would need longer than this to start.
        with pytest.raises(kind):
            run(pte, limits=Limits(seconds=60), **how)
    with pytest.raises(UsageError, match="which method"):
        run(ptes.path("shared"), inputs=saved(tmp_path / "s.npz", ptes.inputs("shared")))


def test_the_toolchain_is_found_or_asked_for(
    ptes: MadePtes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path / "in.npz", ptes.inputs("cpu"))
    done = run(ptes.path("cpu"), inputs=file, toolchain=ptes.toolchain.name)
    assert ptes.toolchain.name in done.notes[0]
    monkeypatch.setenv("HEXPORT_DATA", str(tmp_path / "empty"))
    with pytest.raises(ExecutorchMissing) as raised:
        run(ptes.path("cpu"), inputs=file)
    assert raised.value.next == "hexport toolchain add executorch==1.5.1"
    path = record_path("plain")
    path.parent.mkdir(parents=True)
    document = {**json.loads(json.dumps(ptes.toolchain.to_json())), "schema_version": 1, "name": "plain"}
    del document["state"]
    document["packages"] = {"onnxruntime": "1.31.1"}
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(ExecutorchMissing, match="'plain' has no executorch"):
        run(ptes.path("cpu"), inputs=file, toolchain="plain")


def test_damage_hangs_and_strangers_end_in_typed_errors(ptes: MadePtes, tmp_path: Path) -> None:
    file = saved(tmp_path / "in.npz", ptes.inputs("two"))
    data = bytearray(ptes.path("two").read_bytes())
    half = len(data) // 2
    data[half : half + 4096] = b"\xa5" * 4096  # within the code for the NPU
    (tmp_path / "damaged.pte").write_bytes(data)
    with pytest.raises(WorkerError):
        run(tmp_path / "damaged.pte", inputs=file)
    for content in (b"", b"hello", bytes(data[:40])):
        (tmp_path / "stranger.pte").write_bytes(content)
        with pytest.raises(DamagedFile):
            run(tmp_path / "stranger.pte", inputs=file)
    with pytest.raises(WorkerTimeout):
        run(
            ptes.path("cpu"), inputs=saved(tmp_path / "c.npz", ptes.inputs("cpu")), limits=Limits(seconds=0.2)
        )


def test_numbers_that_the_npu_does_not_have_are_said(ptes: MadePtes, tmp_path: Path) -> None:
    given = ptes.inputs("split")
    given["input_0"][0, 0] = np.nan
    done = run(ptes.path("split"), inputs=saved(tmp_path / "in.npz", given))
    assert any("NaN" in note for note in done.notes)
