"""Which toolchain is used: the one that is asked for, else that of HEXPORT_TOOLCHAIN, else the default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hexport.environments import registry
from hexport.environments.failures import ToolchainChanged
from hexport.environments.record import Toolchain
from hexport.environments.registry import THIS
from hexport.toolchain import interpreter

VARIABLE = "HEXPORT_TOOLCHAIN"
_DEFAULT = "the default, set by `hexport toolchain use`"


@dataclass(frozen=True)
class Choice:
    """A toolchain that applies, and who chose it."""

    toolchain: Toolchain
    by: str

    def __str__(self) -> str:
        text = f"toolchain {self.toolchain.name}: {self.toolchain.title} ({self.by})"
        return f"{text}; its last test failed: {self.toolchain.failure}" if self.toolchain.failure else text


def choose(asked: str | None) -> Choice | None:
    """What applies when ``asked`` was given; None: this interpreter."""
    name, by = _name(asked)
    if name in (None, THIS):
        return None
    return Choice(find(name), by)


def find(name: str) -> Toolchain:
    """The toolchain of that name, with what was verified still in it."""
    toolchain = registry.find(name)
    _refuse_other_files(toolchain)
    return toolchain


@contextmanager
def using(name: str) -> Iterator[Toolchain]:
    """Everything native runs in that toolchain meanwhile. The default of the command line is not looked at:
    what a program computes must not change with what somebody typed in a shell."""
    toolchain = find(name)
    with interpreter.using(toolchain.interpreter):
        yield toolchain


def _name(asked: str | None) -> tuple[str | None, str]:
    if asked is not None:
        return asked, "--toolchain"
    if variable := os.environ.get(VARIABLE):
        return variable, VARIABLE
    return registry.default_name(), _DEFAULT


def _refuse_other_files(toolchain: Toolchain) -> None:
    """Versions stand in reports and in the names of kept results, so they must be true."""
    if toolchain.state == "missing":
        raise ToolchainChanged(
            f"the toolchain {toolchain.name!r} has lost its interpreter",
            why=f"there is no {toolchain.python}",
            next=f"hexport toolchain remove {toolchain.name}, then add it again; or `toolchain use {THIS}`",
        )
    if toolchain.state == "changed":
        raise ToolchainChanged(
            f"other packages are installed in the toolchain {toolchain.name!r} than were verified",
            why=f"it was {toolchain.title}",
            next=f"hexport toolchain test {toolchain.name}",
        )
