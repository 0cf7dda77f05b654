"""Are the right packages installed, do they fit, and is the module the one that was installed?"""

from __future__ import annotations

from pathlib import Path

from hexport import facts
from hexport.diagnosis.installed import MODULE, Installed, requirement
from hexport.diagnosis.machine import Machine
from hexport.diagnosis.report import Finding

_PIP = "python -m pip install"
FIRST_PLUGIN = (2,)
"""From here on onnxruntime-qnn is a plugin with a module of its own, which is what hexport drives."""


def check_onnxruntime(installed: Installed) -> Finding:
    """The host runtime."""
    host = installed.host
    if host is None:
        return Finding(
            "onnxruntime",
            "problem",
            "onnxruntime is not installed",
            why="it loads the model, gives the CPU reference and hosts Qualcomm's provider",
            fix=f"{_PIP} {requirement('onnxruntime')}",
        )
    return Finding("onnxruntime", "ok", str(host))


def check_onnxruntime_qnn(installed: Installed) -> Finding:
    """Qualcomm's provider and libraries."""
    plugin = installed.plugin
    fix = f"{_PIP} {requirement('onnxruntime-qnn')}"
    if plugin is None:
        return Finding(
            "onnxruntime-qnn",
            "problem",
            "onnxruntime-qnn is not installed",
            why="it holds Qualcomm's compiler, simulator and NPU libraries",
            fix=fix,
        )
    if facts.parse_version(plugin.version) < FIRST_PLUGIN:
        return Finding(
            "onnxruntime-qnn",
            "problem",
            str(plugin),
            why="1.x is built into onnxruntime's own module; hexport drives the plugin of 2.x",
            fix=f"python -m pip uninstall -y onnxruntime-qnn onnxruntime, then {_PIP} "
            f"{requirement('onnxruntime')} {requirement('onnxruntime-qnn')}",
        )
    sdk = facts.sdk_of(plugin.version)
    known = f"QNN SDK {sdk}" if sdk else "a release newer than this hexport's table"
    return Finding("onnxruntime-qnn", "ok", f"{plugin} ({known})")


def check_pair(installed: Installed, machine: Machine) -> Finding | None:
    """The two versions against the rules that are known."""
    plugin, host = installed.plugin, installed.host
    if plugin is None or host is None or host == plugin:
        return None
    broken = [
        rule
        for rule in facts.broken_rules(plugin.version, {"onnxruntime": host.version}, machine.platform)
        if not rule.needs.endswith("absent")  # two owners of one module: that is check_owners
    ]
    if not broken:
        return Finding("pair", "ok", f"{plugin} works with {host}")
    return Finding(
        "pair",
        "problem",
        f"{plugin} does not work with {host}",
        why=" ".join(f"{rule.statement} {rule.symptom}" for rule in broken),
        fix="; ".join(rule.cure for rule in broken),
    )


def check_owners(installed: Installed) -> Finding | None:
    """One module, one owner. With two, pip's order decides whose files are there."""
    owners = installed.owners
    if not owners:
        return None
    if len(owners) == 1:
        return Finding("module-owners", "ok", f"the module {MODULE} belongs to {owners[0]} alone")
    names = sorted({owner.name for owner in owners})
    return Finding(
        "module-owners",
        "problem",
        f"the module {MODULE} belongs to several packages: {', '.join(map(str, owners))}",
        why="they overwrite each other's files, so the provider is missing or of another version, "
        "although pip says all is installed",
        fix=f"python -m pip uninstall -y {' '.join(names)}, then {_PIP} {requirement('onnxruntime')}"
        + (f" {requirement('onnxruntime-qnn')}" if "onnxruntime-qnn" in names else ""),
    )


def check_shadowing(installed: Installed, worker_origin: str, lookalike: str) -> Finding | None:
    """What ``import onnxruntime`` really loads: here, and in the worker processes.

    ``lookalike`` is a file in the current folder which hides the module from scripts started there.
    """
    if not installed.owners:
        return None
    for where, origin in (("", installed.origin), (" in hexport's worker processes", worker_origin)):
        if origin and not any(_inside(origin, owner.folder) for owner in installed.owners):
            return Finding(
                "shadowing",
                "problem",
                f"`import {MODULE}`{where} loads {origin}",
                why=f"that is not the installed {installed.host}: another folder comes first on the path",
                fix=f"rename or move {origin}, or take its folder off PYTHONPATH",
            )
    if lookalike:
        return Finding(
            "shadowing",
            "warning",
            f"{lookalike} lies in the current folder",
            why=f"a script started here imports it instead of the installed {MODULE}",
            fix=f"rename {lookalike}, or work in another folder",
        )
    return Finding("shadowing", "ok", f"`import {MODULE}` loads the installed package")


def _inside(origin: str, folder: str) -> bool:
    # Both resolved: site-packages is often reached through a link.
    return Path(origin).resolve().is_relative_to((Path(folder) / MODULE).resolve())
