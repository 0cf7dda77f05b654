"""The interpreter that native code runs in: this one, or that of the toolchain in force.

What is in force is kept in the environment of the process, so that threads see it at once and processes of a
pool inherit it. Without that a candidate judged in another process would silently go to another compiler than
the rest. What keeps to one thread may be about another interpreter (``only_here``): a loaded package keeps
the one that it was loaded with, whatever is in force by then.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hexport.errors import HexportError, UsageError
from hexport.records import RecordError, from_plain, to_plain

VARIABLE = "HEXPORT_INTERPRETER"
"""Set by hexport for its own processes; people choose with HEXPORT_TOOLCHAIN or --toolchain."""
_PACKAGE = Path(__file__).parents[1]
_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


@dataclass(frozen=True)
class Interpreter:
    """A Python that workers may run in, with what is installed there."""

    name: str
    """Of the toolchain."""
    python: str
    platform: str
    """In the words of ``facts``: ``linux-x86_64``, ``windows-arm64``."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version by name, as verified."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What must be set before it starts."""

    def command(self, module: str) -> list[str]:
        """How to run one of hexport's modules there.

        It is given this very package by its folder, so that both sides are of one version and nothing of
        hexport is installed there. Flags and not variables, because ``-E`` keeps what is set for this Python
        (PYTHONPATH, PYTHONHOME) away from the other.
        """
        flags = ["-E", "-s", "-u", "-X", "utf8"]
        return [self.python, *flags, str(_BOOTSTRAP), str(_PACKAGE), module]

    def settings(self) -> dict[str, str]:
        """The environment of its processes, on top of ours."""
        return {**self.environment, VARIABLE: json.dumps(to_plain(self))}


@dataclass(frozen=True)
class _Use:
    thread: int
    interpreter: Interpreter


_changing = threading.Lock()
_uses: list[_Use] = []
_before: list[str | None] = []
"""What the variable was before the first of the uses, while there is one."""
_settled: ContextVar[tuple[Interpreter | None, ...]] = ContextVar("settled", default=())
"""One entry where a thread has it settled for itself."""


def in_force() -> Interpreter | None:
    """The toolchain's interpreter that workers start in; None: this one."""
    if settled := _settled.get():
        return settled[0]
    text = os.environ.get(VARIABLE)
    return _read(text) if text else None


@contextmanager
def using(interpreter: Interpreter) -> Iterator[None]:
    """Everything native runs in ``interpreter`` meanwhile, in all threads of this process.

    So two threads cannot use two at once: give :class:`~hexport.toolchain.Worker` the interpreter itself.
    """
    use = _Use(threading.get_ident(), interpreter)
    with _changing:
        _refuse_two_at_once(use)
        if not _uses:
            _before.append(os.environ.get(VARIABLE))
        _uses.append(use)
        _set(interpreter.settings()[VARIABLE])
    try:
        yield
    finally:
        with _changing:
            _uses.remove(use)
            _set(_uses[-1].interpreter.settings()[VARIABLE] if _uses else _before.pop())


@contextmanager
def only_here(interpreter: Interpreter | None) -> Iterator[None]:
    """What this thread does meanwhile is about ``interpreter``, None for this one, whatever is in force.

    Other threads, those that it starts and processes of a pool among them, know nothing of it.
    """
    before = _settled.set((interpreter,))
    try:
        yield
    finally:
        _settled.reset(before)


def _refuse_two_at_once(use: _Use) -> None:
    for other in _uses:
        if other.thread != use.thread and other.interpreter != use.interpreter:
            raise UsageError(
                f"the toolchain {use.interpreter.name!r} cannot be used now",
                why=f"another thread of this process is using {other.interpreter.name!r}",
                next="use one after the other, or a process for each",
            )


def _set(value: str | None) -> None:
    if value is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = value


@cache
def _read(text: str) -> Interpreter:
    try:
        return from_plain(Interpreter, json.loads(text))
    except (ValueError, RecordError, RecursionError) as error:
        raise HexportError(
            f"the variable {VARIABLE} is damaged",
            why=str(error),
            next=f"unset {VARIABLE}: hexport sets it for its own processes; --toolchain is for you",
        ) from error
