"""Starting, measuring and ending a child process, on each operating system."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from hexport.toolchain import lifeline


class Child:
    """A child with binary pipes, whose life is tied to ours.

    Its stderr goes to ``log``, and the folder of ``log`` is its current one.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], memory: int
    ) -> None:
        self._lifeline: int | None = None
        self._job: object = None
        self._folder = log.parent
        with log.open("ab") as stderr:
            if sys.platform == "win32":
                self.process = self._start(command, stderr, environment)
                from hexport.toolchain.windows_job import KillOnCloseJob

                self._job = KillOnCloseJob(self.process.pid, memory)
            else:
                read_end, write_end = os.pipe()
                try:
                    self.process = self._start(
                        command, stderr, {**environment, **lifeline.environment_for(read_end)}, (read_end,)
                    )
                except BaseException:
                    os.close(write_end)
                    raise
                finally:
                    os.close(read_end)
                self._lifeline = write_end

    def _start(
        self,
        command: Sequence[str],
        stderr: IO[bytes],
        environment: Mapping[str, str],
        pass_fds: tuple[int, ...] = (),
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **environment},
            cwd=self._folder,
            pass_fds=pass_fds,
            # Its own group: Ctrl-C reaches hexport, which then ends the worker at once.
            start_new_session=sys.platform != "win32",
        )

    def resident_bytes(self) -> int | None:
        """Memory in use now; None where this system does not say (Windows limits by job object)."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGE_SIZE")
        return None

    def is_ending(self) -> bool:
        """Whether it has ended, or does so within a moment."""
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> int:
        """End it now, whatever it is doing, and give its return code."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                # A pipe with unsent bytes complains on close; the reader has just been killed.
                with contextlib.suppress(OSError):
                    stream.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        return code
