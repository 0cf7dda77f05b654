"""What there is to run packages with, as far as can be told without touching native code.

The machine is this one; what is installed is what the interpreter in force has, which may be of another
architecture than this one: Windows on Arm runs both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hexport import facts
from hexport.toolchain.interpreter import in_force

_CHIP_FILE = Path("/sys/devices/soc0/machine")


@dataclass(frozen=True)
class Device:
    """A machine to run on; made ones stand for machines that are not at hand."""

    npu: bool = False
    gpu: bool = False
    simulator: bool = False
    driver_sdk: str = ""
    """The QNN SDK of the NPU's driver; empty: it does not tell."""
    soc: facts.Soc | None = None
    """Its chip; None: it does not tell."""
    sdk: str = ""
    """The QNN SDK inside the installed onnxruntime-qnn; empty: there is none, or it is not known."""
    out_of_reach: bool = False
    """There is an NPU, which no Python of this architecture reaches."""


def this_device() -> Device:
    """Look around, once for each interpreter."""
    chosen = in_force()
    return _look(facts.installed_release(), facts.current_platform(), chosen is None)


@cache
def _look(release: str | None, platform: str, own: bool) -> Device:
    sdk = (facts.sdk_of(release) or "") if release else ""
    simulates = facts.simulates_npu(platform)
    if simulates or platform.startswith("darwin"):
        return Device(simulator=simulates and release is not None, sdk=sdk)
    return _arm_device(release is not None, sdk, "" if own else platform)


def _arm_device(installed: bool, sdk: str, platform: str) -> Device:
    # What looks for drivers takes longer than the rest of a load, and is of use on Arm only.
    from hexport.diagnosis.libraries import look_at_libraries
    from hexport.diagnosis.machine import this_machine
    from hexport.storage.place import cache_root

    machine = this_machine(cache_root())
    if not machine.may_have_npu:
        return Device(sdk=sdk)
    system = look_at_libraries(machine, None).system
    if not (platform or machine.platform).endswith(("-arm64", "-aarch64")):
        return Device(sdk=sdk, out_of_reach=bool(system))
    known = [library.sdk for library in system if library.sdk]
    return Device(
        npu=bool(system) and installed,
        # Windows and Android bring OpenCL with the driver; elsewhere there must be a loader.
        gpu=installed and (machine.system != "linux" or bool(machine.opencl.loader)),
        driver_sdk=max(known, key=facts.parse_version, default=""),
        soc=None if machine.system == "windows" else _chip(),
        sdk=sdk,
    )


def _chip() -> facts.Soc | None:
    """Linux and Android say it in a file; Windows does not."""
    try:
        return facts.find_target(_CHIP_FILE.read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError, facts.UnknownTarget):
        return None
