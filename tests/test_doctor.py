"""The doctor on this machine for real, and on made machines that are not at hand."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hexport.diagnosis import backends, driver, interpreter, packages, surroundings
from hexport.diagnosis.emulation import windows_arch
from hexport.diagnosis.examine import judge
from hexport.diagnosis.installed import Distribution, Installed, local_lookalike, look_at_packages
from hexport.diagnosis.libraries import Libraries, Library, look_at_libraries, sdk_of_file, sdk_under
from hexport.diagnosis.machine import Machine, Place, normal_arch
from hexport.diagnosis.memory import linux_memory
from hexport.diagnosis.opencl import look_for_opencl
from hexport.diagnosis.probing import Answer, Probes
from hexport.diagnosis.report import Finding
from hexport.model.tiny import ANSWERS_FOR_ONES
from hexport.toolchain import WorkerExited

on_linux = pytest.mark.skipif(
    normal_arch(os.uname().machine if hasattr(os, "uname") else "") != "x86_64" or sys.platform != "linux",
    reason="asserts what is true of Linux x86_64",
)

RealRun = tuple[subprocess.CompletedProcess[str], list[str]]

# Made machines: named for what they stand for.
LINUX_PC = Machine("linux", "x86_64", "x86_64", (3, 11, 7), glibc="2.36")
SNAPDRAGON_X = Machine("windows", "arm64", "arm64", (3, 13, 0))
SNAPDRAGON_X_EMULATED = replace(SNAPDRAGON_X, python_arch="x86_64", python=(3, 10, 0))
APPLE_SILICON = Machine("macos", "arm64", "arm64", (3, 12, 0))
APPLE_ROSETTA = replace(APPLE_SILICON, python_arch="x86_64")
BOARD = Machine("linux", "arm64", "arm64", (3, 12, 0), glibc="2.39")

SITE = "/env/site-packages"
HOST = Distribution("onnxruntime", "1.31.1", SITE)
PLUGIN = Distribution("onnxruntime-qnn", "2.7.0", SITE)
PAIR = Installed(PLUGIN, (HOST,), f"{SITE}/onnxruntime/__init__.py")
NO_LIBRARIES = Libraries()
BUNDLED = (Library(f"{SITE}/onnxruntime_qnn/libQnnSaver.so", "2.51.0"),)


def run_doctor(cwd: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hexport", "doctor", *options]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def by_check(output: str) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in json.loads(output)["findings"]}


# --- this machine ---


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    cwd = tmp_path_factory.mktemp("cwd")
    result = run_doctor(cwd, "--json")
    return result, names_in(cwd)


@on_linux
def test_real_run_tells_the_truth_about_each_backend(real_run: RealRun) -> None:
    result, left_behind = real_run
    findings = by_check(result.stdout)
    assert {name: findings[name]["status"] for name in ("htp", "gpu", "cpu", "saver", "ir", "system")} == {
        "htp": "ok",
        "gpu": "warning",
        "cpu": "warning",
        "saver": "ok",
        "ir": "ok",
        "system": "ok",
    }
    assert "computes right in the simulator" in findings["htp"]["found"]
    assert "QNN_BACKEND_ERROR_CANNOT_INITIALIZE" in findings["gpu"]["found"]
    assert "Adreno" in findings["gpu"]["why"]
    assert "not in the installed" in findings["cpu"]["found"]
    assert findings["driver"]["found"] == "no NPU here: simulator and compiler only"
    assert result.returncode == 0
    assert result.stderr == ""
    assert left_behind == []


@on_linux
def test_real_run_json_has_the_promised_shape(real_run: RealRun) -> None:
    document = json.loads(real_run[0].stdout)
    assert document["schema_version"] == 1
    assert document["ok"] is True
    assert document["platform"] == "linux-x86_64"
    for finding in document["findings"]:
        assert set(finding) == {"check", "status", "found", "why", "fix"}
        assert finding["found"]
        if finding["status"] != "ok":
            assert finding["why"], finding
            assert finding["fix"], finding
    assert len({finding["check"] for finding in document["findings"]}) == len(document["findings"])


@on_linux
def test_real_sdk_is_read_from_the_libraries(real_run: RealRun) -> None:
    assert "QNN SDK 2." in by_check(real_run[0].stdout)["sdk"]["found"]
    plugin = look_at_packages().plugin
    assert plugin is not None
    package = Path(plugin.folder) / "onnxruntime_qnn"
    libraries = look_at_libraries(LINUX_PC, package)
    assert libraries.bundled_sdk == sdk_of_file(package / "libQnnGpu.so") != ""


@on_linux
def test_people_get_lines_with_marks_and_no_native_noise(tmp_path: Path) -> None:
    log = tmp_path / "native.log"
    result = run_doctor(tmp_path, "--native-log", str(log))
    lines = result.stdout.splitlines()
    assert all(line.startswith(("✓ ", "! ", "  ", "hexport can work here")) or not line for line in lines)
    assert result.stderr == ""
    assert names_in(tmp_path) == ["native.log"]
    assert "==== htp" in log.read_text("utf-8", errors="replace")


@on_linux
def test_real_wrong_library_in_place_of_the_package_s_own(tmp_path: Path) -> None:
    """LD_LIBRARY_PATH with another libQnnHtp.so: onnxruntime raises nothing and computes on the CPU."""
    plugin = look_at_packages().plugin
    assert plugin is not None
    elsewhere = tmp_path / "sdk"
    elsewhere.mkdir()
    impostor = elsewhere / "libQnnHtp.so"
    shutil.copyfile(Path(plugin.folder) / "onnxruntime_qnn" / "libQnnSystem.so", impostor)

    result = run_doctor(tmp_path, "--json", LD_LIBRARY_PATH=str(elsewhere))
    findings = by_check(result.stdout)
    assert result.returncode == 1
    assert findings["htp"]["status"] == "problem"
    assert f"take {elsewhere} off LD_LIBRARY_PATH" in findings["htp"]["fix"]
    assert findings["library-path"]["status"] == "warning"
    assert findings["saver"]["status"] == "ok"

    given = run_doctor(tmp_path, "--json", "--backend-path", str(impostor))
    findings = by_check(given.stdout)
    assert given.returncode == 1
    assert (findings["htp"]["status"], findings["given"]["status"]) == ("ok", "problem")


@on_linux
def test_real_run_in_a_temp_folder_of_another_alphabet(tmp_path: Path) -> None:
    temp = tmp_path / "тест ユ"
    temp.mkdir()
    result = run_doctor(tmp_path, "--json", TMPDIR=str(temp))
    assert by_check(result.stdout)["htp"]["status"] == "ok"
    # Not even the session id of onnxruntime's telemetry.
    assert names_in(temp) == []


def test_native_log_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    result = run_doctor(tmp_path, "--native-log", str(tmp_path / "no" / "such" / "file"))
    assert result.returncode == 2
    assert "HX001" in result.stderr


# --- packages, with real metadata and modules in made folders ---


def install(site: Path, name: str, version: str, module: str, folder: str = "") -> None:
    info = site / (folder or f"{name.replace('-', '_')}-{version}.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(f"{module}\n")
    (site / module).mkdir(exist_ok=True)
    (site / module / "__init__.py").touch()


def owners_status(site: Path) -> str:
    finding = packages.check_owners(look_at_packages([str(site)]))
    return finding.status if finding else "nothing said"


def test_two_owners_of_one_module(tmp_path: Path) -> None:
    install(tmp_path, "onnxruntime", "1.19.0", "onnxruntime")
    install(tmp_path, "onnxruntime-qnn", "1.23.2", "onnxruntime")
    found = look_at_packages([str(tmp_path)])
    finding = packages.check_owners(found)
    assert finding is not None
    assert finding.status == "problem"
    assert "onnxruntime 1.19.0" in finding.found
    assert "onnxruntime-qnn 1.23.2" in finding.found
    assert "pip uninstall -y onnxruntime onnxruntime-qnn" in finding.fix
    assert "plugin of 2.x" in packages.check_onnxruntime_qnn(found).why


def test_plugin_of_2_x_has_a_module_of_its_own(tmp_path: Path) -> None:
    install(tmp_path, "onnxruntime", "1.31.1", "onnxruntime")
    install(tmp_path, "onnxruntime-qnn", "2.7.0", "onnxruntime_qnn")
    found = look_at_packages([str(tmp_path), str(tmp_path)])
    assert [str(owner) for owner in found.owners] == ["onnxruntime 1.31.1"]
    assert owners_status(tmp_path) == "ok"


@pytest.mark.parametrize("other", ["onnxruntime-gpu", "onnxruntime_directml", "ort-nightly"])
def test_other_builds_clash_too(tmp_path: Path, other: str) -> None:
    install(tmp_path, "onnxruntime", "1.31.1", "onnxruntime")
    install(tmp_path, other, "1.22.0", "onnxruntime")
    assert owners_status(tmp_path) == "problem"


def test_what_pip_left_half_removed_is_not_a_clash(tmp_path: Path) -> None:
    install(tmp_path, "onnxruntime", "1.31.1", "onnxruntime")
    install(tmp_path, "onnxruntime", "1.19.0", "onnxruntime", folder="~nnxruntime-1.19.0.dist-info")
    assert owners_status(tmp_path) == "ok"


def test_nothing_installed(tmp_path: Path) -> None:
    found = look_at_packages([str(tmp_path)])
    findings = {f.check: f for f in judge(LINUX_PC, found, Libraries(), Probes({}))}
    assert findings["onnxruntime"].status == "problem"
    assert "pip install onnxruntime==" in findings["onnxruntime"].fix
    assert findings["onnxruntime-qnn"].status == "problem"
    assert findings["htp"].status == "problem"


@pytest.mark.parametrize(
    ("plugin", "host", "status"),
    [
        ("2.7.0", "1.31.1", "ok"),
        ("2.7.0", "1.24.1", "problem"),
        ("2.7.0", "1.24.2", "ok"),
        ("2.3.0", "1.26.0", "ok"),
        ("2.3.0", "1.27.0", "problem"),
        ("2.4.0", "1.27.0", "ok"),
    ],
)
def test_pairs(plugin: str, host: str, status: str) -> None:
    installed = Installed(replace(PLUGIN, version=plugin), (replace(HOST, version=host),))
    finding = packages.check_pair(installed, LINUX_PC)
    assert finding is not None
    assert finding.status == status
    if status == "problem":
        assert "pip install 'onnxruntime" in finding.fix


def test_shadowed_module_for_real(tmp_path: Path) -> None:
    """A fake onnxruntime in front of the path: seen here, in the workers, and named as the cause."""
    fake = tmp_path / "front" / "onnxruntime.py"
    fake.parent.mkdir()
    fake.write_text("__version__ = '0'\n")
    result = run_doctor(tmp_path, "--json", PYTHONPATH=str(fake.parent))
    findings = by_check(result.stdout)
    assert result.returncode == 1
    assert findings["shadowing"]["status"] == "problem"
    assert str(fake) in findings["shadowing"]["found"]
    assert findings["plugin"]["status"] == "problem"
    assert findings["htp"]["status"] == "problem"


def test_local_file_of_the_module_s_name_is_named(tmp_path: Path) -> None:
    assert local_lookalike(tmp_path) == ""
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    result = run_doctor(tmp_path, "--json")
    finding = by_check(result.stdout)["shadowing"]
    assert finding["status"] != "ok"
    assert str(tmp_path / "onnxruntime" / "__init__.py") in finding["found"]


# --- made machines ---


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
