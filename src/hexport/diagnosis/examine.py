"""The examination: gather everything once, then every check in the order of causes."""

from __future__ import annotations

from pathlib import Path

from hexport.diagnosis import backends, driver, interpreter, packages, surroundings
from hexport.diagnosis.installed import Installed, local_lookalike, look_at_packages
from hexport.diagnosis.libraries import Libraries, look_at_libraries
from hexport.diagnosis.machine import Machine, this_machine
from hexport.diagnosis.probing import Probes, probe_all
from hexport.diagnosis.report import Finding, Report
from hexport.toolchain import Limits
from hexport.zoo import cache


def doctor(
    *,
    backend_path: str | Path | None = None,
    limits: Limits | None = None,
    native_log: str | Path | None = None,
) -> Report:
    """Look at this machine: what works, what does not, and the exact fix.

    ``backend_path`` also tries a QNN library from elsewhere; ``native_log`` keeps what the native
    libraries said.
    """
    machine = this_machine(cache.root().parent)
    installed = look_at_packages()
    package = Path(installed.plugin.folder) / "onnxruntime_qnn" if installed.plugin else None
    libraries = look_at_libraries(machine, package)
    probes = Probes({})
    if installed.plugin is not None:
        probes = probe_all(
            machine,
            system_library=_system_library(libraries),
            backend_path=str(backend_path) if backend_path else None,
            limits=limits or Limits(seconds=60.0),
            native_log=None if native_log is None else Path(native_log),
        )
    return Report(machine.platform, judge(machine, installed, libraries, probes, local_lookalike(Path.cwd())))


def judge(
    machine: Machine, installed: Installed, libraries: Libraries, probes: Probes, lookalike: str = ""
) -> tuple[Finding, ...]:
    """Every check on what was gathered; those that do not concern this machine say nothing."""
    htp_works = backends.works(probes.answers.get("htp"))
    findings: list[Finding | None] = [
        interpreter.check_python(machine),
        interpreter.check_architecture(machine),
        interpreter.check_wheel(machine),
        interpreter.check_glibc(machine),
        packages.check_onnxruntime(installed),
        packages.check_onnxruntime_qnn(installed),
        packages.check_pair(installed, machine),
        packages.check_owners(installed),
        packages.check_shadowing(installed, probes.worker_origin, lookalike),
        driver.check_sdk(installed, libraries),
        driver.check_library_path(libraries),
        driver.check_driver(machine, installed, libraries, htp_works),
    ]
    findings += backends.check_backends(probes, machine, libraries)
    findings += [
        driver.check_skeletons(machine, libraries, htp_works),
        surroundings.check_paths(machine),
        surroundings.check_disk(machine),
        surroundings.check_memory(machine),
    ]
    return tuple(finding for finding in findings if finding is not None)


def _system_library(libraries: Libraries) -> Path | None:
    for library in libraries.bundled:
        if library.name in ("libQnnSystem.so", "QnnSystem.dll"):
            return Path(library.path)
    return None
