"""Questions to an interpreter, each in a worker of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.environments.failures import BadInterpreter
from hexport.records import from_plain
from hexport.toolchain import Interpreter, Limits, Worker, WorkerError
from hexport.toolchain.failures import JobFailed

_MODULE = "hexport.environments.jobs"
_SECONDS = 600.0
_INSTALL_SECONDS = 3600.0
_KEY_PACKAGES = ("onnxruntime", "onnxruntime-qnn", "executorch", "torch")


@dataclass(frozen=True)
class Package:
    version: str
    info: str
    """The folder of its metadata, which has the version in its name."""


@dataclass(frozen=True)
class Sight:
    """What an interpreter says of itself."""

    python: str
    platform: str
    packages: dict[str, Package]
    libraries: tuple[str, ...]
    """QNN libraries of its onnxruntime-qnn: ``QnnHtp``, ``QnnCpu``, …"""

    @property
    def versions(self) -> dict[str, str]:
        return {name: package.version for name, package in sorted(self.packages.items())}

    @property
    def evidence(self) -> tuple[str, ...]:
        """Folders that are gone when another version is installed."""
        found = (self.packages[name].info for name in _KEY_PACKAGES if name in self.packages)
        return tuple(place for place in found if place)


def whole_path(python: str) -> str:
    """Where the interpreter is, without following links: through one a venv would lose its packages."""
    found = shutil.which(python)
    if found is None:
        raise BadInterpreter(
            f"there is no Python at {python!r}",
            why="it does not exist, is a folder, or may not be run",
            next="name the interpreter itself, for example /usr/bin/python3.12",
        )
    return os.path.abspath(found)  # noqa: PTH100 - pathlib's would not take away a ".."


def look(python: str) -> Sight:
    """Ask the interpreter at ``python`` what it is."""
    try:
        return from_plain(Sight, ask(python, "look", {}))
    except WorkerError as error:
        raise BadInterpreter(
            f"{python} cannot be used as a toolchain",
            why=f"{error.what}: {error.why}" if error.why else error.what,
            next="a toolchain needs CPython 3.11 or newer",
        ) from error


def ask(python: str, job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one of ``jobs.py`` there."""
    limits = Limits(_SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="hexport-", ignore_cleanup_errors=True) as folder,
        Worker(_MODULE, Path(folder, "log"), limits=limits, python=_bare(python)) as worker,
    ):
        return worker.call(job, arguments)


def run_pip(python: str, arguments: tuple[str, ...]) -> tuple[int, str]:
    """pip with the user's own settings (index, proxy, certificates); its exit code and what it said.

    Wheels only: nothing that comes from an index is run to install it. Verbose, because without that pip
    may say of an index it cannot reach that it has no such version.
    """
    always = ("-vv", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-color")
    request = {"arguments": ["install", *always, "--only-binary", ":all:", *arguments]}
    with tempfile.TemporaryDirectory(prefix="hexport-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "pip.log")
        try:
            with Worker(_MODULE, log, limits=Limits(_INSTALL_SECONDS), python=_bare(python)) as worker:
                code = int(worker.call("install", request)["code"])
        except JobFailed as error:
            return 1, f"{_said(log)}\nERROR: {error.kind}: {error.text}"
        return code, _said(log)


def _said(log: Path) -> str:
    return log.read_text("utf-8", errors="replace")


def _bare(python: str) -> Interpreter:
    return Interpreter("", python, "")
