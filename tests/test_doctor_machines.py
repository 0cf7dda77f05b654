"""The doctor on made machines that are not at hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hexport.diagnosis import backends, driver, interpreter, surroundings
from hexport.diagnosis.emulation import windows_arch
from hexport.diagnosis.libraries import Libraries, Library, look_at_libraries, sdk_under
from hexport.diagnosis.machine import Machine, Place
from hexport.diagnosis.memory import linux_memory
from hexport.diagnosis.opencl import look_for_opencl
from hexport.diagnosis.probing import Answer
from hexport.diagnosis.report import Finding
from hexport.model.tiny import ANSWERS_FOR_ONES
from hexport.toolchain import WorkerExited
from made_machines import (
    APPLE_ROSETTA,
    APPLE_SILICON,
    BOARD,
    BUNDLED,
    LINUX_PC,
    NO_LIBRARIES,
    PAIR,
    SNAPDRAGON_X,
    SNAPDRAGON_X_EMULATED,
)


def test_emulated_python_on_a_snapdragon_laptop() -> None:
    finding = interpreter.check_architecture(SNAPDRAGON_X_EMULATED)
    assert finding.status == "problem"
    assert "x86_64 Python, emulated on an arm64 machine" in finding.found
    assert "exit code 127" in finding.why
    assert "--architecture arm64" in finding.fix
    assert interpreter.check_python(SNAPDRAGON_X_EMULATED).status == "problem"
    assert interpreter.check_architecture(SNAPDRAGON_X).status == "ok"
    assert SNAPDRAGON_X.platform == "windows-arm64"
    assert BOARD.platform == "linux-aarch64"


def test_windows_tells_the_native_machine() -> None:
    emulated = {"PROCESSOR_ARCHITECTURE": "AMD64"}
    assert windows_arch(0xAA64, emulated) == "arm64"
    assert windows_arch(None, emulated) == "x86_64"
    assert windows_arch(None, {"PROCESSOR_ARCHITECTURE": "x86", "PROCESSOR_ARCHITEW6432": "ARM64"}) == "arm64"


def test_32_bit_python() -> None:
    assert interpreter.check_architecture(replace(LINUX_PC, python_arch="x86")).status == "problem"


def test_macos_has_no_wheel() -> None:
    for machine in (APPLE_SILICON, APPLE_ROSETTA):
        finding = interpreter.check_wheel(machine)
        assert finding.status == "problem"
        assert "linux/amd64" in finding.fix
    assert interpreter.check_architecture(APPLE_ROSETTA).status == "warning"
    assert interpreter.check_glibc(APPLE_SILICON) is None


@pytest.mark.parametrize(("glibc", "status"), [("2.31", "problem"), ("2.35", "ok"), ("", "problem")])
def test_glibc(glibc: str, status: str) -> None:
    finding = interpreter.check_glibc(replace(LINUX_PC, glibc=glibc))
    assert finding is not None
    assert finding.status == status


def test_driver_older_than_the_package_on_a_snapdragon_laptop() -> None:
    """The first-hand account's machine: driver 2.40 and a package that is newer."""
    libraries = Libraries(BUNDLED, system=(Library("C:\\store\\QnnHtp.dll", "2.40.0"),))
    finding = driver.check_driver(SNAPDRAGON_X, PAIR, libraries, htp_works=False)
    assert finding.status == "problem"
    assert "2.40.0" in finding.found
    assert "2.51.0" in finding.found
    assert "onnxruntime-qnn==1.23.*" in finding.fix
    assert "update the device's NPU driver" in finding.fix


def test_driver_older_on_a_board_names_the_release_to_install() -> None:
    libraries = Libraries(BUNDLED, system=(Library("/usr/lib/libQnnHtp.so", "2.48.40"),))
    finding = driver.check_driver(BOARD, PAIR, libraries, htp_works=False)
    assert finding.status == "problem"
    assert "pip install 'onnxruntime-qnn==2.4.0'" in finding.fix
    # What was seen to compute outweighs a table.
    assert driver.check_driver(BOARD, PAIR, libraries, htp_works=True).status == "warning"


def test_driver_of_the_same_sdk_or_newer_is_fine() -> None:
    for sdk in ("2.51.0", "2.52.1"):
        libraries = Libraries(BUNDLED, sdk_root=sdk)
        assert driver.check_driver(SNAPDRAGON_X, PAIR, libraries, htp_works=False).status == "ok"


def test_arm_machine_without_a_driver() -> None:
    finding = driver.check_driver(BOARD, PAIR, Libraries(BUNDLED), htp_works=False)
    assert finding.status == "problem"
    assert "libfastrpc1" in finding.fix


def test_driver_store_is_searched(tmp_path: Path) -> None:
    """A made driver store: two packages, the newer one counts; the build id is inside the library."""
    for package, content in (("a", b"\0\0v2.38.0.250901123456\0"), ("b", b"AISW_VERSION: 2.40.0\0")):
        folder = tmp_path / f"System32/DriverStore/FileRepository/qcnspmcdm8380.inf_arm64_{package}/HTP"
        folder.mkdir(parents=True)
        (folder / "QnnHtp.dll").write_bytes(b"MZ" + content)
    machine = replace(SNAPDRAGON_X, env={"SystemRoot": str(tmp_path)})
    libraries = replace(look_at_libraries(machine, None), bundled=BUNDLED)
    assert sorted(library.sdk for library in libraries.system) == ["2.38.0", "2.40.0"]
    assert "QNN 2.40.0" in driver.check_driver(machine, PAIR, libraries, htp_works=False).found


def test_sdk_root(tmp_path: Path) -> None:
    assert sdk_under({}) == ""
    assert sdk_under({"QNN_SDK_ROOT": "/opt/qairt/2.40.0.251030"}) == "2.40.0"
    assert sdk_under({"QNN_SDK_ROOT": "/opt/qairt/current"}) == ""
    (tmp_path / "sdk.yaml").write_text("name: qairt\nversion: 2.37.1.250807\n")
    assert sdk_under({"QNN_SDK_ROOT": str(tmp_path)}) == "2.37.1"


def test_mixed_releases_in_the_package() -> None:
    mixed = Libraries((Library("libQnnSaver.so", "2.50.40"),))
    finding = driver.check_sdk(PAIR, mixed)
    assert finding is not None
    assert finding.status == "warning"
    assert "onnxruntime-qnn==2.7.0" in finding.fix


def test_skeletons_matter_only_on_linux_devices(tmp_path: Path) -> None:
    skeleton = Library(f"{tmp_path}/libQnnHtpV73Skel.so")
    libraries = Libraries((*BUNDLED, skeleton))
    assert driver.check_skeletons(LINUX_PC, libraries, htp_works=False).status == "ok"
    unset = driver.check_skeletons(BOARD, libraries, htp_works=False)
    assert unset.status == "warning"
    assert unset.fix == f'export ADSP_LIBRARY_PATH="{tmp_path}"'
    assert driver.check_skeletons(BOARD, libraries, htp_works=True).status == "ok"
    gone = replace(BOARD, env={"ADSP_LIBRARY_PATH": f"{tmp_path};/no/such/folder"})
    finding = driver.check_skeletons(gone, libraries, htp_works=True)
    assert finding.status == "warning"
    assert "/no/such/folder" in finding.found


# --- judging backends ---


def judged(answer: Answer, libraries: Libraries = NO_LIBRARIES, machine: Machine = LINUX_PC) -> Finding:
    return backends.check_backend(answer, machine, libraries)


def test_right_numbers_from_the_cpu_do_not_pass_for_the_npu() -> None:
    answer = Answer("htp", created=True, on_backend=False, values=ANSWERS_FOR_ONES)
    assert judged(answer).status == "problem"


@pytest.mark.parametrize("wrong", [math.nan, 3.25])
def test_wrong_numbers_are_a_problem(wrong: float) -> None:
    right = Answer("htp", created=True, on_backend=True, values=ANSWERS_FOR_ONES)
    assert judged(right).status == "ok"
    finding = judged(replace(right, values=(*ANSWERS_FOR_ONES[:-1], wrong)))
    assert finding.status == "problem"
    assert "wrong numbers" in finding.found


def test_process_that_dies_without_a_word() -> None:
    """What a driver older than the package looks like: exit code 127, nothing else."""
    error = WorkerExited("the worker ended with exit code 127 and no answer", why="it said nothing")
    finding = judged(Answer("htp", error=error), machine=SNAPDRAGON_X)
    assert finding.status == "problem"
    assert "127" in finding.found
    assert "driver" in finding.fix


def test_optional_backends_only_warn() -> None:
    for backend in ("gpu", "cpu", "saver", "ir"):
        assert judged(Answer(backend, created=True, failure="it did not")).status == "warning"


def test_opencl_drivers_are_named(tmp_path: Path) -> None:
    (tmp_path / "pocl.icd").write_text("/usr/lib/libpocl.so.2\n")
    opencl = look_for_opencl(tmp_path)
    assert opencl.drivers == ("libpocl.so.2",)
    gpu = Libraries((Library("libQnnGpu.so"),))
    answer = Answer("gpu", created=True, failure="QNN_BACKEND_ERROR_CANNOT_INITIALIZE")
    assert "libpocl.so.2" in judged(answer, gpu, replace(BOARD, opencl=opencl)).why


# --- surroundings ---


def test_paths_on_windows() -> None:
    def paths(temp: str) -> Finding:
        return surroundings.check_paths(replace(SNAPDRAGON_X, places={"temp": Place(temp)}))

    assert paths("C:\\Temp").status == "ok"
    strange = paths("C:\\Users\\Jürgen\\AppData\\Local\\Temp")
    assert (strange.status, "set TEMP" in strange.fix) == ("warning", True)
    assert "260" in paths("C:\\" + "x" * 200).why


@pytest.mark.parametrize(
    ("free", "status"), [(3 * 10**9, "ok"), (10**9, "warning"), (10**8, "problem"), (0, "problem")]
)
def test_disk(free: int, status: str) -> None:
    places = {"temp": Place("/tmp", free), "cache": Place("/cache", 10**12)}
    assert surroundings.check_disk(replace(LINUX_PC, places=places)).status == status


def test_memory_counts_the_limit_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   16000000 kB\n")
    assert linux_memory(tmp_path) == 16_000_000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("500000000\n")
    (group / "memory.max").write_text("max\n")
    assert linux_memory(tmp_path) == 16_000_000 * 1024
    (group / "memory.max").write_text("1500000000\n")
    assert linux_memory(tmp_path) == 1_000_000_000
    assert surroundings.check_memory(replace(LINUX_PC, memory_bytes=10**9)).status == "warning"
