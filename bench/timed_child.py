"""A child process with its wall time and the peak memory of itself and of all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_LOOK = 0.05
"""Seconds between two looks at the memory of all that it started."""
_PAUSE = 0.005
"""Seconds between two looks at the child alone."""
_TAIL = 20_000
"""Characters that are kept of what it printed on stderr."""


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int | None
    """None when its time was over."""
    seconds: float
    peak_bytes: int | None
    """Resident, summed over the child and its descendants; None where the system does not tell."""
    output: str
    errors: str

    @property
    def words(self) -> str:
        """How it failed, in a few words; empty when it did not."""
        if self.code == 0:
            return ""
        if self.code is None:
            return f"no answer in {self.seconds:.0f} s"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self.code}"


def run_timed(command: Sequence[str], limit: float, setting: Mapping[str, str] | None = None) -> Ended:
    """Run ``command`` to its end, or kill it after ``limit`` seconds; ``setting`` joins its environment."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **(setting or {})},
        )
        peak, next_look = 0, began
        try:
            while process.poll() is None and time.perf_counter() - began < limit:
                # Its own highest is kept for us by the system, but gone with it: the last look must be late.
                peak = max(peak, _memory(process.pid)[1])
                if time.perf_counter() >= next_look:
                    peak = max(peak, _resident_now(process.pid))
                    next_look = time.perf_counter() + _LOOK
                time.sleep(_PAUSE)
            seconds, code = time.perf_counter() - began, process.poll()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return Ended(code, seconds, peak or None, _text(output), _text(errors)[-_TAIL:])


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _resident_now(root: int) -> int:
    """Bytes of ``root`` and its descendants; at least the most that one of them alone ever had."""
    if sys.platform != "linux":
        return 0
    total, highest = 0, 0
    for pid in _descendants(root):
        now, most = _memory(pid)
        total, highest = total + now, max(highest, most)
    return max(total, highest)


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                # The command's name is in parentheses and may hold anything; the parent comes two after it.
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _memory(pid: int) -> tuple[int, int]:
    """Resident bytes of one process, now and at its highest."""
    sizes = {"VmRSS": 0, "VmHWM": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in sizes:
                sizes[name] = int(rest.split()[0]) * 1024
    return sizes["VmRSS"], sizes["VmHWM"]
