"""A worker module for tests: jobs that die in every way a native library can."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hexport.toolchain.serving import JobError, serve


def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def noise(arguments: dict[str, Any]) -> dict[str, Any]:
    """Print to both streams from native code, as QNN libraries do."""
    libc = ctypes.CDLL(None)
    libc.puts(b"native noise on stdout")
    libc.fflush(None)
    os.write(2, b"native noise on stderr\n")
    return {}


def crash(arguments: dict[str, Any]) -> dict[str, Any]:
    os.write(2, b"\x1b[1;31m2026-01-01 00:00:00.000000000 [E:onnxruntime:, x.cc:1 f] about to fail\x1b[m\n")
    os.kill(os.getpid(), getattr(signal, arguments["signal"]))
    return {}


def leave(arguments: dict[str, Any]) -> dict[str, Any]:
    os._exit(arguments["code"])


def hang_holding_the_lock(arguments: dict[str, Any]) -> dict[str, Any]:
    """Sleep in C through PyDLL, which keeps Python's lock: no thread of this process can run."""
    ctypes.PyDLL(None).sleep(arguments["seconds"])
    return {}


def eat_memory(arguments: dict[str, Any]) -> dict[str, Any]:
    eaten = []
    while True:
        eaten.append(bytearray(b"x" * (16 << 20)))
        time.sleep(0.01)


def garble(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write something that is no message to the protocol's own pipe."""
    for number in range(3, 64):
        try:
            if str(Path(f"/proc/self/fd/{number}").readlink()).startswith("pipe:"):
                os.write(number, b"this is not a message of the protocol at all")
        except OSError:
            continue
    time.sleep(30)
    return {}


def fail(arguments: dict[str, Any]) -> dict[str, Any]:
    if arguments["kind"] == "python":
        raise ZeroDivisionError("one over nothing")
    if arguments["kind"] == "memory":
        raise MemoryError("std::bad_alloc")
    raise JobError(arguments["kind"], "the reason")


if __name__ == "__main__":
    jobs = (echo, noise, crash, leave, hang_holding_the_lock, eat_memory, garble, fail)
    sys.setrecursionlimit(200)
    serve({job.__name__: job for job in jobs})
