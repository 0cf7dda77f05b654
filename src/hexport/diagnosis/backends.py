"""Does the plugin load, and does each backend behind it really start?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.diagnosis.libraries import Libraries
from hexport.diagnosis.machine import Machine
from hexport.diagnosis.probing import Answer, Probes
from hexport.diagnosis.report import Finding, Status
from hexport.model.tiny import ANSWERS_FOR_ONES

_TOLERANCE = 1e-2
"""fp16 on values up to 3 errs by 2e-3; a wrong answer of this model is off by 0.25 or more."""
_NOT_A_PAIR = "Unable to find a valid interface"
_REINSTALL = "python -m pip install --force-reinstall onnxruntime onnxruntime-qnn"
# onnxruntime-qnn 2.3.0 is the last with a QNN CPU library for Linux; it needs the older host.
_CPU_FIX = (
    "nothing, unless you want this very backend: on Linux it was last in onnxruntime-qnn 2.3.0; "
    "hexport toolchain add onnxruntime-qnn==2.3.0"
)


@dataclass(frozen=True)
class _Backend:
    label: str
    purpose: str
    required: bool = False


_BACKENDS = {
    "htp": _Backend("HTP backend (NPU)", "it compiles for the NPU: hexport's main job", True),
    "gpu": _Backend("GPU backend", "only --backend gpu needs it"),
    "cpu": _Backend("QNN CPU backend", "hexport's reference is onnxruntime's own CPU provider"),
    "saver": _Backend("Saver backend", "it records QNN calls for bug reports"),
    "ir": _Backend("IR backend", "it writes .dlc files"),
    "given": _Backend("given backend library", "the library you asked about", True),
}


def works(answer: Answer | None) -> bool:
    """The backend took the model, and if it was run, computed right."""
    return answer is not None and answer.on_backend and not answer.failure and not _wrong(answer)


def check_backends(probes: Probes, machine: Machine, libraries: Libraries) -> tuple[Finding, ...]:
    """The plugin, then what is behind it; when it does not load, its error is said once."""
    if not probes.answers:
        return (_not_tried("onnxruntime-qnn is not installed"),)
    plugin = check_plugin(probes)
    if plugin.status != "ok":
        return (plugin, _not_tried("the QNN provider does not load"))
    each = [check_backend(answer, machine, libraries) for answer in probes.answers.values()]
    return (plugin, *each, check_system_library(probes, libraries))


def check_plugin(probes: Probes) -> Finding:
    """Whether the provider library registers and makes sessions, whatever its backends do."""
    if any(answer.created for answer in probes.answers.values()):
        return Finding("plugin", "ok", "the QNN provider loads, registers and offers a device")
    error = probes.worker_error or next(
        (answer.error for answer in probes.answers.values() if answer.error), None
    )
    if error is None:
        return Finding(
            "plugin",
            "problem",
            "sessions are made without the QNN provider",
            why="onnxruntime fell back to the CPU without a word",
            fix=_REINSTALL,
        )
    return Finding(
        "plugin",
        "problem",
        f"the QNN provider does not load: {error.what}",
        why=error.why,
        fix=f"first what is marked ✗ above; if nothing is, {_REINSTALL}",
    )


def check_backend(answer: Answer, machine: Machine, libraries: Libraries) -> Finding:
    """One backend's answer, judged."""
    backend = _BACKENDS[answer.backend]
    bad: Status = "problem" if backend.required else "warning"
    if works(answer):
        return Finding(answer.backend, "ok", f"{backend.label} {_achievement(answer, machine)}")
    if answer.error is not None:
        return Finding(
            answer.backend,
            bad,
            f"{backend.label}: {answer.error.what}",
            why=f"{answer.error.why or 'it died without a word'}; {backend.purpose}",
            fix=_cure(f"{answer.error.what} {answer.error.why}", answer.error.next),
        )
    if answer.on_backend and not answer.failure:
        return Finding(
            answer.backend,
            bad,
            f"{backend.label} computes wrong numbers: {_numbers(answer.values)}",
            why=f"a tiny Add and Relu gives {_numbers(ANSWERS_FOR_ONES)}; no result of it can be trusted",
            fix=_REINSTALL,
        )
    return _not_started(answer, backend, bad, machine, libraries)


def check_system_library(probes: Probes, libraries: Libraries) -> Finding:
    """The library that reads context binaries without a device."""
    why = "it reads what is inside a context binary (hexport inspect)"
    if not libraries.in_package("QnnSystem"):
        return Finding("system", "warning", "QnnSystem is not in the onnxruntime-qnn package", why=why)
    if probes.system_error:
        return Finding(
            "system", "warning", f"QnnSystem does not load: {probes.system_error}", why=why, fix=_REINSTALL
        )
    return Finding("system", "ok", "QnnSystem library loads")


def _not_started(
    answer: Answer,
    backend: _Backend,
    bad: Status,
    machine: Machine,
    libraries: Libraries,
) -> Finding:
    said = answer.failure or "it took no node of a model that every backend takes"
    found = f"{backend.label} does not start: {said}"
    silent = "onnxruntime raises nothing here and computes everything on the CPU"
    known = facts.find_backend(answer.backend)
    name = known.library if known else ""  # of a library that was given
    taken = any(library.name == f"lib{name}.so" for library in libraries.on_path)
    if _NOT_A_PAIR in said or taken or answer.backend == "given":
        return Finding(
            answer.backend, bad, found, why=f"{_rule_statement()}; {silent}", fix=_pair_fix(answer, libraries)
        )
    if name and not libraries.in_package(name):
        return Finding(
            answer.backend,
            bad,
            f"{backend.label}: its library is not in the installed onnxruntime-qnn",
            why=backend.purpose,
            fix=_CPU_FIX if answer.backend == "cpu" and machine.system == "linux" else _REINSTALL,
        )
    if answer.backend == "gpu":
        return _gpu(found, answer, machine)
    return Finding(
        answer.backend, bad, found, why=f"{backend.purpose}; {silent}", fix=_cure(said, _REINSTALL)
    )


def _gpu(found: str, answer: Answer, machine: Machine) -> Finding:
    if machine.may_have_npu:
        fix = "install the device's Adreno OpenCL driver (libOpenCL of the vendor's image), or use the NPU"
    else:
        fix = "nothing to install here: use the NPU backend, or run on a device with an Adreno GPU"
    # On x86_64 the library refuses to run, whatever driver there is, and says so here.
    said = answer.detail
    why = f"it needs an Adreno GPU and Qualcomm's OpenCL driver; {machine.opencl}"
    return Finding("gpu", "warning", found, why=f"{why}; the library says: {said}" if said else why, fix=fix)


def _not_tried(why: str) -> Finding:
    label = _BACKENDS["htp"].label
    return Finding("htp", "problem", f"{label} was not tried: {why}", why=_BACKENDS["htp"].purpose)


def _pair_fix(answer: Answer, libraries: Libraries) -> str:
    if answer.backend == "given":
        return "leave backend_path out: the package's own library is the one that fits"
    if libraries.on_path:
        folders = sorted({str(Path(library.path).parent) for library in libraries.on_path})
        return f"take {', '.join(folders)} off LD_LIBRARY_PATH: the loader finds its libQnn files first"
    return _REINSTALL


def _rule_statement() -> str:
    rule = next(rule for rule in facts.rules() if rule.id == "matched-pair")
    return rule.statement.rstrip(".")


def _achievement(answer: Answer, machine: Machine) -> str:
    if not answer.values:
        return f"starts and takes the model ({answer.seconds:.1f} s)"
    where = (
        "in the simulator" if machine.simulates and answer.backend in ("htp", "given") else "on the device"
    )
    return f"compiles, runs and computes right {where} ({answer.seconds:.1f} s)"


def _wrong(answer: Answer) -> bool:
    if not answer.values:
        return False
    if len(answer.values) != len(ANSWERS_FOR_ONES):
        return True
    pairs = zip(answer.values, ANSWERS_FOR_ONES, strict=True)
    # Written so that NaN counts as wrong.
    return not all(abs(value - expected) <= _TOLERANCE for value, expected in pairs)


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _cure(text: str, otherwise: str) -> str:
    # The usual advice of errors is to come here, which is no advice here.
    usual = _REINSTALL if "hexport doctor" in otherwise else otherwise
    return "; ".join(code.cure for code in facts.explain(text)) or usual
