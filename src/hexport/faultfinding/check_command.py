"""A command of the user's that says whether a model shows the failure.

The convention is that of C-Reduce's interestingness tests: exit code 0 means that the failure still shows.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx_ir as ir

from hexport.errors import HexportError, UsageError
from hexport.faultfinding.saving import save_for_worker
from hexport.toolchain import Limits

PLACE = "{model}"


class BadCheckCommand(HexportError, ValueError):
    """The command of ``--check`` cannot be started."""

    code = "HX902"


class CheckCommand:
    """Starts it without a shell, once a model; what it prints is thrown away."""

    def __init__(self, command: str, folder: Path, limits: Limits) -> None:
        self.text = command
        self._words = _split(command)
        self._folder = folder
        self._limits = limits

    def still_fails(self, model: ir.Model) -> bool:
        """Whether it ends with 0. Any other end, its time limit among them, is a no."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder, "model.onnx")
            save_for_worker(model, path)
            return self._run([word.replace(PLACE, str(path)) for word in self._words]) == 0

    def _run(self, words: list[str]) -> int | None:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Its own group, so that what it starts ends with it.
                start_new_session=sys.platform != "win32",
            )
        except (OSError, ValueError) as error:
            raise BadCheckCommand(
                f"--check: {words[0]!r} cannot be started",
                why=str(error),
                next="give a program and its arguments; there is no shell, so no pipes and no `cd`",
            ) from error
        job = _tied(process.pid, self._limits)  # noqa: F841 - holds until the command has ended
        try:
            return process.wait(self._limits.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _split(command: str) -> list[str]:
    try:
        # Backslashes are part of Windows' paths; there, quotes are then ours to take off.
        words = shlex.split(command, posix=os.name != "nt")
    except ValueError as error:
        raise UsageError("--check: the command cannot be read", why=str(error)) from error
    if os.name == "nt":
        words = [word.strip("\"'") for word in words]
    if not words or not any(PLACE in word for word in words):
        raise UsageError(
            f"--check: the command has no {PLACE}",
            why="it stands for the file that the command is to look at",
            next=f'write for example --check "python shows_it.py {PLACE}"',
        )
    return words


def _tied(pid: int, limits: Limits) -> object:
    """On Windows a job object ends whatever the command starts, at the latest with this process."""
    if sys.platform == "win32":
        from hexport.toolchain.windows_job import KillOnCloseJob

        return KillOnCloseJob(pid, limits.memory)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    # Once it has been waited for, its number may be another process's.
    if process.poll() is None:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
