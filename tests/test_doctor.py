"""The doctor on this machine for real, and on packages in made folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hexport.diagnosis import packages
from hexport.diagnosis.examine import judge
from hexport.diagnosis.installed import Installed, local_lookalike, look_at_packages
from hexport.diagnosis.libraries import Libraries, look_at_libraries, sdk_of_file
from hexport.diagnosis.machine import normal_arch
from hexport.diagnosis.probing import Probes
from made_machines import HOST, LINUX_PC, PLUGIN

on_linux = pytest.mark.skipif(
    normal_arch(os.uname().machine if hasattr(os, "uname") else "") != "x86_64" or sys.platform != "linux",
    reason="asserts what is true of Linux x86_64",
)

RealRun = tuple[subprocess.CompletedProcess[str], list[str]]


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
