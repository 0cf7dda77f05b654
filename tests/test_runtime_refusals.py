"""What does not fit is refused with its reason, before native code sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexport import facts
from hexport.errors import HexportError, UsageError
from hexport.packaging.failures import NotAPackage, PackageIncomplete, PackageTampered, PackageTooNew
from hexport.runtime import engine
from hexport.runtime.device import Device
from hexport.runtime.failures import BackendMissing, BadInput, Incompatible, InferenceFailed
from hexport.runtime.loading import load
from made_packages import edit
from runtime_packages import attention, question, rows

X = np.ones((1, 8, 8), np.float32)
BAD_INPUTS: dict[str, tuple[Any, str]] = {
    "no dict": ([X], "inputs are given as list"),
    "nothing": ({}, "'x' is missing"),
    "another name": ({"x": X, "z": X}, "'z' is no input"),
    "another dtype": ({"x": X.astype(np.float64)}, "float64"),
    "whole numbers": ({"x": X.astype(np.int32)}, "int32"),
    "text": ({"x": np.full((1, 8, 8), "a")}, "input 'x' is"),
    "an object": ({"x": object()}, "input 'x' is"),
    "ragged": ({"x": [[1.0], [1.0, 2.0]]}, "'x' is no array"),
    "rank": ({"x": X[0]}, r"float32\[8, 8\]"),
    "a fixed dim": ({"x": np.ones((1, 8, 7), np.float32)}, r"\[1, 8, 7\]"),
    "another batch": ({"x": np.ones((2, 8, 8), np.float32)}, r"\[2, 8, 8\]"),
    "another frozen value": ({"x": X, "gain": np.float32(3)}, "frozen to, 2.0"),
    "no number": ({"x": X * np.float32(np.nan)}, "holds NaN"),
    "nothing in it": ({"x": X[:, :0]}, "fit no bucket"),
    "too large": ({"x": np.ones((1, 17, 8), np.float32)}, "fit no bucket"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_inputs_never_reach_native_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, said = BAD_INPUTS[name]
    forbid_native_code(monkeypatch)
    with load(rows(), "simulator", allow_cpu=False) as session, pytest.raises(BadInput, match=said) as caught:
        session.run(inputs)
    assert caught.value.why or caught.value.next
    assert isinstance(caught.value, ValueError)


def test_dims_of_one_name_have_one_size() -> None:
    with load(attention(), "cpu") as session, pytest.raises(BadInput, match="'seq' has the sizes 8 and 7"):
        session.run({"ids": question(8)["ids"], "mask": question(7)["mask"]})


@pytest.mark.parametrize("isolate", [False, True])
def test_the_cpu_takes_what_has_no_elements_or_says_why_not(isolate: bool) -> None:
    with load(rows(), "cpu", isolate=isolate) as session:
        assert session.run({"x": X[:, :0]})["y"].shape == (1, 0, 4)


@pytest.mark.parametrize("isolate", [False, True])
def test_an_error_of_native_code_is_a_typed_one(isolate: bool) -> None:
    """An index beyond the table: onnxruntime notices that itself, and the session lives on."""
    bad = question(8)
    bad["ids"][0, 0] = 10_000
    with load(attention(), "cpu", isolate=isolate) as session:
        with pytest.raises(InferenceFailed) as caught:
            session.run(bad)
        assert "Gather" in caught.value.why
        assert session.run(question(8))["y"].shape == (1, 8, 16)
        assert session.describe().rebuilt == 0


def forbid_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("native code was called")

    monkeypatch.setattr(engine, "import_onnxruntime", never)
    monkeypatch.setattr(engine, "make_session", never)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(rows(), tmp_path / "package"))


def _flip(package: Path, pattern: str) -> None:
    path = next(iter(sorted(package.glob(pattern))))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(package: Path, pattern: str) -> None:
    path = next(iter(sorted(package.glob(pattern))))
    path.write_bytes(path.read_bytes()[:-1])


def _set(name: str, value: object) -> Callable[[Path], None]:
    def change(document: dict[str, Any]) -> None:
        document[name] = value

    return lambda package: edit(package, change)


def _sdk(version: str) -> Callable[[Path], None]:
    return lambda package: edit(package, lambda document: document["toolchain"].update(qnn_sdk=version))


def _target(**changes: object) -> Callable[[Path], None]:
    return lambda package: edit(package, lambda document: document["targets"][0].update(changes))


DAMAGES: dict[str, tuple[Callable[[Path], None], type[HexportError], str]] = {
    "a bit of a binary": (lambda p: _flip(p, "SM8650/*.bin"), PackageTampered, "simulator"),
    "a bit of a context model": (lambda p: _flip(p, "SM8650/*.onnx"), PackageTampered, "simulator"),
    "a bit of the CPU model": (lambda p: _flip(p, "models/cpu.onnx"), PackageTampered, "cpu"),
    "a binary cut short": (lambda p: _cut(p, "SM8650/*.bin"), PackageIncomplete, "simulator"),
    "a file less": (lambda p: next(p.glob("SM8650/*.bin")).unlink(), PackageIncomplete, "cpu"),
    "no manifest": (lambda p: (p / "hexport.json").unlink(), NotAPackage, "cpu"),
    "a newer schema": (_set("schema_version", 99), PackageTooNew, "cpu"),
    "a newer SDK": (_sdk("9.0.0"), Incompatible, "simulator"),
    "an SDK of no name": (_sdk("unknown"), Incompatible, "simulator"),
    "another backend": (_target(backend="gpu"), Incompatible, "simulator"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_package_that_is_not_whole_or_not_for_here_is_refused(
    name: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage, kind, backend = DAMAGES[name]
    forbid_native_code(monkeypatch)
    load(package, backend).close()
    damage(package)
    with pytest.raises(kind) as caught:
        load(package, backend)
    assert caught.value.why


def _device(**changes: Any) -> Device:
    sdk = facts.sdk_of(facts.installed_release() or "") or ""
    return Device(
        **{"npu": True, "sdk": sdk, "driver_sdk": sdk, "soc": facts.find_target("SM8650"), **changes}
    )


def test_an_npu_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_native_code(monkeypatch)
    for device in (_device(), _device(soc=None), _device(driver_sdk="")):
        with load(rows(), device=device) as session:
            assert (session.backend, session.describe().target) == ("npu", "SM8650")
            assert session.notes == []


def test_a_package_for_the_gpu_is_taken_by_a_gpu_only(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_native_code(monkeypatch)
    _target(backend="gpu")(package)
    device = _device(gpu=True)
    with load(package, "gpu", device=device) as session:
        assert session.backend == "gpu"
        (part,) = session._plan.parts_for(session.buckets[0])
        assert part.provider_options == {"backend_type": "gpu"}
    for backend in ("npu", "auto"):
        with pytest.raises(Incompatible, match="nothing for the NPU"):
            load(package, backend, device=device)
    with pytest.raises(Incompatible, match="nothing for the GPU"):
        load(rows(), "gpu", device=device)


def test_a_higher_generation_runs_it_and_says_what_would_be_better() -> None:
    said: list[str] = []
    load(rows(), device=_device(soc=facts.find_target("SM8750")), say=said.append).close()
    assert len(said) == 1
    assert "SM8750" in said[0]


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (_device(soc=facts.find_target("SM8550")), "HTP v75"),
        (_device(driver_sdk="2.31.0"), "newer than 2.31.0"),
        (_device(sdk="2.40.0"), "newer than 2.40.0"),
    ],
)
def test_an_npu_that_does_not_fit_is_never_tried(
    device: Device, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with ``auto``, which does not hide it behind the CPU."""
    forbid_native_code(monkeypatch)
    for backend in ("npu", "auto"):
        with pytest.raises(Incompatible) as caught:
            load(rows(), backend, device=device)
        assert said in str(caught.value)


def test_libraries_newer_than_the_driver_are_refused(package: Path) -> None:
    _sdk("2.30.0")(package)
    with pytest.raises(Incompatible, match="installed onnxruntime-qnn"):
        load(package, device=_device(driver_sdk="2.31.0"))


@pytest.mark.parametrize("backend", ["npu", "gpu", "simulator"])
def test_what_this_machine_does_not_have_is_said(backend: str) -> None:
    with pytest.raises(BackendMissing) as caught:
        load(rows(), backend, device=Device(sdk="2.51.0"))
    assert "'cpu'" in caught.value.next


def test_wrong_calls(package: Path) -> None:
    for arguments, kind in (
        ({"backend": "tpu"}, UsageError),
        ({"backend": "cpu", "target": "SM8650"}, UsageError),
        ({"backend": "simulator", "target": "SM8550"}, Incompatible),
        ({"backend": "simulator", "target": "nothing"}, facts.UnknownTarget),
    ):
        with pytest.raises(kind):
            load(package, **arguments)  # type: ignore[arg-type]


def test_without_a_cpu_model_nothing_pretends(package: Path) -> None:
    (package / "models/cpu.onnx").unlink()
    edit(
        package,
        lambda document: document.update(
            artefacts=[one for one in document["artefacts"] if one["role"] != "cpu_model"]
        ),
    )
    with pytest.raises(BackendMissing, match="cannot run on the CPU"):
        load(package)
    with load(package, "simulator") as session, pytest.raises(BadInput, match="fit no bucket"):
        session.run({"x": np.ones((1, 17, 8), np.float32)})
