"""Can this interpreter load Qualcomm's libraries at all?"""

from __future__ import annotations

from hexport import facts
from hexport.diagnosis.machine import Machine
from hexport.diagnosis.report import Finding

OLDEST_PYTHON = (3, 11)
# Every platform without a wheel has the same way out.
_ELSEWHERE = (
    "work on a Linux x86_64 machine, or in a container: docker run -it --platform linux/amd64 python:3.12"
)


def check_python(machine: Machine) -> Finding:
    """The version."""
    version = ".".join(map(str, machine.python))
    if machine.python >= OLDEST_PYTHON:
        return Finding("python", "ok", f"Python {version}")
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        "python",
        "problem",
        f"Python {version}",
        why=f"hexport needs Python {oldest} or newer",
        fix=f"install Python {oldest} or newer, make a new environment with it, pip install hexport",
    )


def check_architecture(machine: Machine) -> Finding:
    """The interpreter's architecture against the processor's."""
    if machine.python_arch in ("x86", "arm"):
        return Finding(
            "architecture",
            "problem",
            f"a 32-bit Python ({machine.python_arch}) on {machine.arch}",
            why="onnxruntime and Qualcomm's libraries are 64-bit only",
            fix="install the 64-bit Python for this machine and put hexport there",
        )
    if machine.python_arch == machine.arch:
        return Finding("architecture", "ok", f"{machine.arch}, and Python runs natively")
    found = f"an {machine.python_arch} Python, emulated on an {machine.arch} machine"
    if machine.system == "windows":
        rule = _rule("native-process")
        return Finding(
            "architecture",
            "problem",
            found,
            why=f"{rule.statement} {rule.symptom}",
            fix="winget install Python.Python.3.13 --architecture arm64, make a new environment with it, "
            "pip install hexport",
        )
    return Finding(
        "architecture",
        "warning",
        found,
        why="emulated code is slow, and native libraries may not load",
        fix=f"install the {machine.arch} build of Python",
    )


def check_wheel(machine: Machine) -> Finding:
    """Whether PyPI has Qualcomm's libraries for this platform."""
    with_wheel = [release for release in facts.releases() if machine.platform in release.platforms]
    if with_wheel:
        newest = max(with_wheel, key=lambda release: facts.parse_version(release.version))
        return Finding(
            "wheel", "ok", f"onnxruntime-qnn has wheels for {machine.platform} (known up to {newest.version})"
        )
    return Finding(
        "wheel",
        "problem",
        f"onnxruntime-qnn has no wheel for {machine.platform}",
        why="Qualcomm's compiler and simulator come with it; without it hexport can only look at models",
        fix=_ELSEWHERE,
    )


def check_glibc(machine: Machine) -> Finding | None:
    """Linux wheels need a recent GNU libc; other systems have none to check."""
    if machine.system != "linux":
        return None
    rule = _rule("glibc")
    if not machine.glibc:
        return Finding(
            "glibc",
            "problem",
            "no GNU libc (musl, as on Alpine Linux?)",
            why=rule.statement,
            fix="use a glibc distribution, for example the python:3.12 image instead of python:3.12-alpine",
        )
    newest = facts.releases()[-1].version
    if rule in facts.broken_rules(newest, {"glibc": machine.glibc}, machine.platform):
        return Finding("glibc", "problem", f"glibc {machine.glibc}", why=rule.statement, fix=rule.cure)
    return Finding("glibc", "ok", f"glibc {machine.glibc}")


def _rule(name: str) -> facts.Rule:
    return next(rule for rule in facts.rules() if rule.id == name)
