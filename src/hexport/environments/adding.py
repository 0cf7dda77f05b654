"""Adding toolchains and testing them: both end with a tiny graph that really ran."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexport import facts
from hexport.environments import asking, registry
from hexport.environments.failures import DoesNotFit, ToolchainExists
from hexport.environments.keeping import Say, silent
from hexport.environments.making import make
from hexport.environments.record import Toolchain, write_record
from hexport.environments.requirements import (
    EXECUTORCH,
    HOST,
    PROVIDER,
    Surroundings,
    check_pair,
    is_pin,
    make_plan,
    read_pins,
)
from hexport.environments.verifying import examined, proved
from hexport.errors import UsageError
from hexport.records import to_plain


@dataclass(frozen=True)
class Added:
    """A toolchain that is there now."""

    toolchain: Toolchain
    already: bool
    """It was there before, the same."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain, "toolchain": self.toolchain.to_json()}


def add(*specs: str, name: str | None = None, python: str | None = None, say: Say = silent) -> Added:
    """Make an environment of ``PACKAGE==VERSION``, or give a name to the interpreter ``python``.

    With pins ``python`` is the interpreter that the environment is made of, by default this one.
    """
    if python is not None and len(specs) == 1 and not is_pin(specs[0]):
        if name is not None:
            raise UsageError("an interpreter gets one name", why=f"given: {specs[0]!r} and --name {name!r}")
        return _adopt(specs[0], python, say)
    pins = read_pins(specs)  # what is wrong with them by themselves comes before any work
    base = asking.whole_path(python or sys.executable)
    sight = asking.look(base)
    plan = make_plan(specs, Surroundings(sight.python, sight.platform))
    main = EXECUTORCH if EXECUTORCH in pins else PROVIDER
    name = registry.check_name(name or f"{main}-{plan.pins[main]}".lower().replace("+", "-"))
    with registry.locked(name, lambda: say(f"another process is making {name}; waiting for it")):
        present = _present(name)
        if present is None:
            return Added(make(name, plan, base, say), already=False, notes=plan.notes)
    _refuse_other(present, plan.requirements, sight.python)
    return Added(present, already=True, notes=plan.notes)


def _adopt(name: str, python: str, say: Say) -> Added:
    registry.check_name(name)
    path = asking.whole_path(python)
    with registry.locked(name, lambda: say(f"another process is making {name}; waiting for it")):
        present = _present(name)
        if present is not None and (present.folder or present.python != path):
            raise _taken(present)
        sight = asking.look(path)
        _refuse_unfit(sight, path)
        say("verifying: a tiny graph on every backend")
        toolchain = Toolchain(
            name, path, sight.python, sight.platform, sight.versions, (), evidence=sight.evidence
        )
        toolchain = proved(toolchain, sight)
        with registry.writing():
            write_record(registry.record_path(name), toolchain)
    return Added(toolchain, already=present is not None)


def retest(name: str, say: Say = silent) -> Toolchain:
    """Verify it again; the result is kept, also in the record when it fails."""
    with registry.locked(name, lambda: say(f"another process works on {name}; waiting for it")):
        toolchain = registry.find(name)
        if toolchain.state == "missing":
            return replace(toolchain, failure=f"there is no {toolchain.python} any more")
        sight = asking.look(toolchain.python)
        say("verifying: a tiny graph on every backend")
        present = replace(
            toolchain,
            python_version=sight.python,
            platform=sight.platform,
            packages=sight.versions,
            evidence=sight.evidence,
        )
        tested = examined(present, sight)
        with registry.writing():
            write_record(registry.record_path(name), tested)
    return tested


def _present(name: str) -> Toolchain | None:
    return registry.find(name) if registry.record_path(name).exists() else None


def _refuse_other(present: Toolchain, requirements: Sequence[str], python: str) -> None:
    same = tuple(requirements) == present.requirements and present.python_version == python
    if not same:
        raise _taken(present)
    if present.state != "ok":
        raise ToolchainExists(
            f"the toolchain {present.name!r} is there, but it is {present.state}",
            why=present.failure or "its files are not what was verified",
            next=f"hexport toolchain test {present.name}, or remove it and add it again",
        )


def _taken(present: Toolchain) -> ToolchainExists:
    return ToolchainExists(
        f"there is a toolchain {present.name!r} already",
        why=f"it is {present.title} ({present.python})",
        next="give another --name, or remove it first: hexport toolchain remove " + present.name,
    )


def _refuse_unfit(sight: asking.Sight, path: str) -> None:
    """What can be told without starting anything native."""
    versions = sight.versions
    if EXECUTORCH in versions:
        return
    needed = (PROVIDER, HOST, "numpy")
    if missing := [package for package in needed if package not in versions]:
        raise DoesNotFit(
            f"{path} lacks {', '.join(missing)}",
            why="a toolchain needs Qualcomm's provider, its host runtime and numpy",
            next=f"{path} -m pip install {' '.join(missing)}; or let hexport make an environment: "
            f"hexport toolchain add {PROVIDER}==VERSION --python {path}",
        )
    plugin = facts.find_plugin(versions[PROVIDER])
    if plugin is not None:
        check_pair(plugin, versions[HOST])
