"""The interpreter that has executorch: the one that was named, the one in force, or the one there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hexport import facts
from hexport.environments import registry
from hexport.environments.choosing import find
from hexport.environments.failures import ToolchainError
from hexport.environments.record import Toolchain
from hexport.environments.requirements import EXECUTORCH
from hexport.executorch.pte.failures import ExecutorchMissing
from hexport.toolchain import Interpreter, in_force, only_here


def find_executorch(toolchain: str | None = None) -> Interpreter:
    """By its name; else what is in force; else the only one, or the newest, that is registered."""
    if toolchain is not None and toolchain != registry.THIS:
        return _having(find(toolchain).interpreter)
    chosen = in_force()
    if chosen is not None:
        return _having(chosen)
    found = _registered()
    if not found:
        raise ExecutorchMissing(
            "there is no toolchain with executorch",
            why="ExecuTorch needs a torch and a QNN of its own, apart from hexport's",
            next=_add(),
        )
    # The record that failed its last test comes after all that passed.
    best = max(found, key=lambda one: (one.state == "ok", facts.parse_version(one.packages[EXECUTORCH])))
    return find(best.name).interpreter


@contextmanager
def with_onnxruntime() -> Iterator[None]:
    """What needs onnxruntime runs in hexport's own interpreter, if that in force is executorch's."""
    here = in_force()
    with only_here(here if here is not None and "onnxruntime" in here.packages else None):
        yield


@contextmanager
def with_executorch() -> Iterator[None]:
    """What needs executorch is looked for among all toolchains, if that in force has none."""
    here = in_force()
    with only_here(here if here is not None and EXECUTORCH in here.packages else None):
        yield


def qnn_sdk_of(interpreter: Interpreter) -> str | None:
    """The QNN SDK that executorch uses there; None: it is the user's own, or not known."""
    release = interpreter.packages.get("onnxruntime-qnn")
    return facts.sdk_of(release) if release else None


def title(interpreter: Interpreter) -> str:
    """For people."""
    return f"executorch {interpreter.packages[EXECUTORCH]} (toolchain {interpreter.name})"


def _having(interpreter: Interpreter) -> Interpreter:
    if EXECUTORCH not in interpreter.packages:
        others = [one.name for one in _registered()]
        raise ExecutorchMissing(
            f"the toolchain {interpreter.name!r} has no executorch",
            why="a .pte is run and made by executorch",
            next=f"--toolchain {others[0]}" if others else _add(),
        )
    return interpreter


def _registered() -> list[Toolchain]:
    found = []
    for name in registry.names():
        try:
            toolchain = registry.find(name)
        except ToolchainError:
            continue  # a record that cannot be read is told by `toolchain list`
        if EXECUTORCH in toolchain.packages and toolchain.state != "missing":
            found.append(toolchain)
    return found


def _add() -> str:
    return f"hexport toolchain add {EXECUTORCH}=={facts.executorch_releases()[-1].version}"
