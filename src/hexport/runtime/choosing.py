"""Where a package runs on this machine, and which of its chips' code is taken."""

from __future__ import annotations

from dataclasses import dataclass

from hexport import facts
from hexport.errors import UsageError
from hexport.packaging import Package
from hexport.packaging.manifest import CPU_MODEL, Target
from hexport.runtime.compatibility import refuse_incompatible
from hexport.runtime.device import Device
from hexport.runtime.failures import BackendMissing, Incompatible

AUTO, NPU, SIMULATOR, GPU, CPU = "auto", "npu", "simulator", "gpu", "cpu"
_FOREIGN = "this machine's NPU is out of reach of a Python of this architecture"
BACKENDS = (AUTO, NPU, SIMULATOR, GPU, CPU)


@dataclass(frozen=True)
class Choice:
    """A backend of this machine, and the target whose files it runs."""

    backend: str
    target: Target | None
    """None: on the CPU."""
    notes: tuple[str, ...] = ()


def choose(package: Package, backend: str, target: str | int | None, device: Device) -> Choice:
    """The backend that was asked for, if it is here and the package is for it.

    ``auto`` is the NPU, and the CPU on a machine that has none; a package that does not fit an NPU that is
    there is refused, and the simulator is never chosen by itself.
    """
    if backend not in BACKENDS:
        raise UsageError(f"backend {backend!r} is not known", next=f"use one of {', '.join(BACKENDS)}")
    wanted = (NPU if device.npu else CPU) if backend == AUTO else backend
    if wanted == CPU:
        return _on_cpu(package, backend, target, device)
    _refuse_absent(wanted, device)
    chosen = _target(package, wanted, target, device)
    refuse_incompatible(package, chosen, wanted == NPU, device)
    return Choice(wanted, chosen, _lower_generation(chosen, device) if wanted == NPU else ())


def _on_cpu(package: Package, backend: str, target: str | int | None, device: Device) -> Choice:
    if backend == CPU and target is not None:
        raise UsageError(f"target {target} has no meaning on the CPU", next="give a backend or a target")
    found = package.find(CPU_MODEL)
    if not found:
        raise BackendMissing(
            f"{package.folder} cannot run on the CPU",
            why="it holds no model for the CPU" + (", and there is no NPU here" if backend == AUTO else ""),
            next="use backend 'simulator'"
            if device.simulator
            else "build it again without --without-cpu-model",
        )
    missing = _FOREIGN if device.out_of_reach else "no NPU on this machine"
    line = f"{missing}: {package.folder.name} runs on the CPU, from {found[0].path}"
    return Choice(CPU, None, (line,) if backend == AUTO else ())


def _refuse_absent(backend: str, device: Device) -> None:
    there = {NPU: device.npu, SIMULATOR: device.simulator, GPU: device.gpu}
    if backend == NPU and device.out_of_reach:
        raise BackendMissing(
            _FOREIGN,
            why="Windows on Arm has its drivers for ARM64 programs only",
            next="hexport toolchain add NAME --python ARM64-PYTHON, then load with toolchain='NAME'",
        )
    if not there[backend]:
        others = [name for name, found in there.items() if found]
        raise BackendMissing(
            f"this machine has no {'NPU' if backend == NPU else backend}",
            why="the simulator is in onnxruntime-qnn for Linux x86_64 only"
            if backend == SIMULATOR
            else "no driver of Qualcomm's was found, or onnxruntime-qnn is not installed",
            next=f"use {' or '.join(repr(name) for name in (*others, CPU))}; `hexport doctor` tells more",
        )


def _target(package: Package, backend: str, asked: str | int | None, device: Device) -> Target:
    kind = "gpu" if backend == GPU else "htp"
    fitting = [target for target in package.manifest.targets if target.backend == kind]
    known = ", ".join(f"{t.name} ({t.backend})" for t in package.manifest.targets) or "no chip"
    if not fitting:
        raise Incompatible(
            f"{package.folder} has nothing for the {'GPU' if kind == 'gpu' else 'NPU'}",
            why=f"it was built for {known}",
            next="build it for this backend, or use backend 'cpu'",
        )
    if asked is not None:
        soc = facts.find_target(asked)
        for target in fitting:
            if target.soc_model == soc.soc_model:
                return target
        raise Incompatible(f"{package.folder} has nothing for {soc.chip}", why=f"it was built for {known}")
    if backend == NPU and device.soc is not None:
        return _nearest(fitting, device.soc)
    return fitting[0]


def _nearest(targets: list[Target], soc: facts.Soc) -> Target:
    """This very chip, else the highest generation that it can run; else the lowest, which is then refused."""
    exact = [target for target in targets if target.soc_model == soc.soc_model]
    lower = [target for target in targets if target.htp_arch <= soc.htp_arch]
    if exact or lower:
        return exact[0] if exact else max(lower, key=lambda target: target.htp_arch)
    return min(targets, key=lambda target: target.htp_arch)


def _lower_generation(target: Target, device: Device) -> tuple[str, ...]:
    if device.soc is None or target.htp_arch >= device.soc.htp_arch:
        return ()
    return (
        f"made for {target.name} (HTP v{target.htp_arch}), and this is {device.soc.chip} "
        f"(v{device.soc.htp_arch}): it runs; built for {device.soc.chip} it may be faster",
    )
