"""The line of the user's own code that an error or an operator comes from, and the module it is in."""

from __future__ import annotations

import linecache
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import fx, nn

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_ROOT = "(the model itself)"
_NOWHERE = ("<frozen", "<string", "<eval")
"""Code without a file: Python's own, and what torch generates."""


@dataclass(frozen=True)
class Place:
    """A line of code, and the module that was running."""

    file: str = ""
    line: int = 0
    module: str | None = None
    """Its path from the model, empty for the model itself; None: not known."""

    def __str__(self) -> str:
        said = []
        if self.file:
            text = linecache.getline(self.file, self.line).strip()
            said.append(f"{self.file}:{self.line}" + (f": {text}" if text else ""))
        if self.module is not None:
            said.append(f"in module {self.module or _ROOT}")
        return "\n".join(said)


def place_of_error(error: BaseException, root: nn.Module | None = None) -> Place:
    """Where in the user's code ``error`` was raised: the deepest line there."""
    names = {} if root is None else {id(module): name for name, module in root.named_modules()}
    file, line, module = "", 0, None
    for frame, number in _walk(error.__traceback__):
        owner = _self_of(frame)
        if owner is not None and id(owner) in names:
            module = names[id(owner)]
        if is_users(frame.f_code.co_filename):
            file, line = frame.f_code.co_filename, number
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno or 0
    return Place(file, line, module)


def place_of_node(node: fx.Node) -> Place:
    """Where an operator of an exported graph comes from."""
    file, line = "", 0
    for found in _FRAME.finditer(str(node.meta.get("stack_trace") or "")):
        if is_users(found["file"]):
            file, line = found["file"], int(found["line"])
    return Place(file, line, module_of(node))


def module_of(node: fx.Node) -> str | None:
    """The path of the innermost module that an operator belongs to."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    path = str(list(stack.values())[-1][0])
    # torch.export counts the calls of a module that is called more than once: "fc@1".
    return re.sub(r"@\d+", "", path.removeprefix("L['self']").removeprefix("."))


def is_users(file: str) -> bool:
    """Not torch's, not Python's, not hexport's own; other people's libraries count as the user's."""
    path = Path(file)
    if (
        file.startswith(_NOWHERE)
        or path.is_relative_to(_torch_folder())
        or path.is_relative_to(_own_folder())
    ):
        return False
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed) or not path.is_relative_to(sysconfig.get_paths()["stdlib"])


@cache
def _torch_folder() -> Path:
    import torch

    return Path(torch.__file__).parent


@cache
def _own_folder() -> Path:
    return Path(__file__).parents[1]


def _walk(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _self_of(frame: FrameType) -> object | None:
    """The first argument of the function, which a method calls ``self``."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
