"""The parent's side of a worker: start it, give it a job, wait within limits, name what went wrong."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hexport.toolchain import failures, protocol
from hexport.toolchain.interpreter import VARIABLE, Interpreter, in_force
from hexport.toolchain.last_words import last_words
from hexport.toolchain.processes import Child
from hexport.toolchain.protocol import Message

_POLL_SECONDS = 0.05
_START_SECONDS = 60.0
_PARTING_SECONDS = 5.0
"""For the last words of a worker that no longer listens."""
_END = object()
_SETTINGS = {
    # Last words are not lost in a crash, and are UTF-8 whatever the locale.
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",
    # `python -m` would import an onnxruntime.py from the current folder before the real one.
    "PYTHONSAFEPATH": "1",
    # From 1.29 on onnxruntime for Linux opens a telemetry store when it is imported.
    "ORT_DISABLE_TELEMETRY": "1",
}


def _default_memory() -> int:
    """Three quarters of the machine: enough for any model that can be compiled here at all."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    return 16 * 2**30


@dataclass(frozen=True)
class Limits:
    """What one job may take."""

    seconds: float = 900.0
    memory_bytes: int | None = None

    @property
    def memory(self) -> int:
        return self.memory_bytes if self.memory_bytes is not None else _default_memory()


class Worker:
    """A process running ``module``, which serves jobs (see ``serving.py``).

    Use it as a context manager; leaving it ends the process. ``log`` receives everything the
    native code prints, and its folder is the worker's current one: some backends write files there.
    ``python`` is an interpreter that has hexport itself, or one of a toolchain, which needs not; by default
    what is in force.
    """

    def __init__(
        self,
        module: str,
        log: Path,
        *,
        limits: Limits | None = None,
        python: str | Interpreter | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._log = log
        self._limits = limits or Limits()
        self._number = 0
        """Of the last job."""
        command, settings = _start_of(module, python or in_force() or sys.executable)
        try:
            self._child = Child(command, log, {**settings, **(environment or {})}, self._limits.memory)
        except OSError as error:
            raise failures.WorkerNotStarted(
                "the worker process could not be started",
                why=str(error),
                next=f"check that {command[0]} exists and may be run",
            ) from error
        self._replies: queue.SimpleQueue[object] = queue.SimpleQueue()
        threading.Thread(target=self._receive, daemon=True).start()
        self.pid = self._greeted()

    def call(self, job: str, arguments: dict[str, Any], *, seconds: float | None = None) -> dict[str, Any]:
        """Run one job and give its result, or raise the :class:`WorkerError` that names its end.

        ``seconds`` is less time than the limits give.
        """
        self._number += 1
        body = {"number": self._number, "job": job, "arguments": arguments}
        allowed = self._limits.seconds if seconds is None else min(seconds, self._limits.seconds)
        try:
            reply = self._wait(allowed if self._send(body) else _PARTING_SECONDS)
            return self._result(reply)
        except failures.JobFailed:
            raise
        except BaseException:
            # A worker that failed, or whose caller was interrupted, is never used again.
            self.close()
            raise

    def close(self) -> None:
        """End the process, if it is still there. Safe to call twice."""
        self._child.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _greeted(self) -> int:
        """The process number from its hello. On Windows a venv's python is a launcher with another one."""
        try:
            return self._pid_of(self._wait(_START_SECONDS))
        except failures.WorkerExited as error:
            self.close()
            raise failures.WorkerNotStarted(
                "the worker ended before it was ready",
                why="\n".join(error.native_log[-3:]) or error.why,
                next="run `hexport doctor`",
                native_log=error.native_log,
            ) from error
        except BaseException:
            self.close()
            raise

    def _pid_of(self, hello: Message) -> int:
        match hello:
            case Message("hello", {"pid": int(pid)}):
                return pid
        raise self._misunderstood(f"it began with {hello.kind!r} and not with a hello")

    def _send(self, body: dict[str, Any]) -> bool:
        """False: it no longer listens, and what it said before that is the reason."""
        assert self._child.process.stdin is not None
        try:
            data = protocol.encode(Message("job", body))
        except protocol.ProtocolError as error:
            raise failures.WorkerProtocolError(
                f"the job {body['job']!r} cannot be sent to the worker", why=str(error)
            ) from error
        with contextlib.suppress(OSError):
            self._child.process.stdin.write(data)
            self._child.process.stdin.flush()
            return True
        return False

    def _result(self, reply: Message) -> dict[str, Any]:
        number = self._number
        match reply:
            case Message("result", {"number": int(n), "result": dict(result)}) if n == number:
                return result
            case Message("error", {"number": int(n), "kind": "MemoryError", "text": str(text)}) if (
                n == number
            ):
                raise self._out_of_memory(text)
            case Message("error", {"number": int(n), "kind": str(kind), "text": str(text)}) if n == number:
                raise failures.JobFailed(kind, text, native_log=last_words(self._log))
            case Message("refused", {"text": str(text)}):
                raise self._misunderstood(f"it did not understand what it was sent: {text}")
        raise self._misunderstood(f"{reply.kind!r} is no answer to job number {number}")

    def _receive(self) -> None:
        stream = self._child.process.stdout
        assert stream is not None
        count = 0
        try:
            while (message := protocol.read(stream)) is not None:
                self._replies.put(message)
                count += 1
                # The hello, an answer to each job, and one too many, which the next job stumbles over:
                # a worker that talks without end would fill this process's memory.
                if count > self._number + 2:
                    self._replies.put(protocol.ProtocolError("it says more than it is asked"))
                    break
        except (protocol.ProtocolError, OSError, ValueError) as error:
            self._replies.put(error)
        self._replies.put(_END)

    def _wait(self, seconds: float) -> Message:
        deadline = time.monotonic() + seconds
        while True:
            try:
                reply = self._replies.get(timeout=max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
            except queue.Empty:
                used = self._child.resident_bytes()
                if used is not None and used > self._limits.memory:
                    raise self._out_of_memory(f"{used / 2**20:.0f} MiB in use") from None
                if time.monotonic() >= deadline:
                    raise self._timeout(seconds) from None
                continue
            if isinstance(reply, Message):
                return reply
            if isinstance(reply, Exception):
                if self._child.is_ending():
                    self._raise_for_end()  # it died in the middle of a message
                raise self._misunderstood(str(reply))
            self._raise_for_end()

    def _misunderstood(self, why: str) -> failures.WorkerProtocolError:
        self._child.end()
        return failures.WorkerProtocolError(
            "the worker's answer could not be read",
            why=why,
            next="the worker and this hexport must be of one version; run `hexport doctor`",
            native_log=last_words(self._log),
        )

    def _out_of_memory(self, why: str) -> failures.WorkerOutOfMemory:
        self._child.end()
        return failures.WorkerOutOfMemory(
            f"the worker passed its memory limit of {self._limits.memory / 2**20:.0f} MiB and was ended",
            why=why,
            next="raise --memory-limit, use smaller dims, or a machine with more memory",
            native_log=last_words(self._log),
        )

    def _timeout(self, seconds: float) -> failures.WorkerTimeout:
        self._child.end()
        return failures.WorkerTimeout(
            f"the worker gave no answer within {seconds:g} s and was ended",
            why="Qualcomm's compiler can take minutes for unrolled recurrent layers, and can hang",
            next="raise --timeout, or use smaller dims",
            native_log=last_words(self._log),
        )

    def _raise_for_end(self) -> Message:
        code = self._child.end()
        words = last_words(self._log)
        if code < 0:
            raise failures.WorkerCrashed(
                f"the native code crashed ({_signal_name(-code)})",
                why=_why_signal(-code, words),
                next="the model and options that did this make a bug report; --native-log FILE keeps the log",
                native_log=words,
            )
        raise failures.WorkerExited(
            f"the worker ended with exit code {code} and no answer",
            why=words[-1] if words else "it said nothing",
            next="run `hexport doctor`; --native-log FILE keeps the whole log",
            native_log=words,
        )


def _start_of(module: str, python: str | Interpreter) -> tuple[list[str], dict[str, str]]:
    """The command, and what it needs to have set."""
    if isinstance(python, Interpreter):
        return python.command(module), {**_SETTINGS, **python.settings()}
    return [python, "-m", module], {**_SETTINGS, VARIABLE: ""}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _why_signal(number: int, words: tuple[str, ...]) -> str:
    if sys.platform != "win32" and number == signal.SIGKILL:
        return "something else ended it; most often the kernel, because the machine ran out of memory"
    return words[-1] if words else "it died without a word"
