"""No worker outlives its parent, however the parent ends.

The parent holds one end of a pipe it never writes to; the kernel closes it when the parent dies,
`kill -9` included. On Linux the worker asks the kernel for SIGKILL at that moment, because a thread
that waits for it would need Python's lock, which hung native code may hold. (PR_SET_PDEATHSIG would
fire when the *thread* that started the worker ends, so it cannot be used under a thread pool.)
On Windows a job object does the same from the parent's side, see ``processes.py``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

_ENVIRONMENT = "HEXPORT_LIFELINE_FD"


def environment_for(read_end: int) -> dict[str, str]:
    """How the worker learns of its end of the pipe."""
    return {_ENVIRONMENT: str(read_end)}


def hold() -> None:
    """In the worker: tie this process's life to its parent's."""
    number = os.environ.pop(_ENVIRONMENT, "")
    if not number:
        return
    fd = int(number)
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([fd], [], [], 0)[0]:
            os._exit(1)  # the parent was gone before we asked for the signal
    else:
        threading.Thread(target=_wait_for_the_end, args=(fd,), daemon=True).start()


def _wait_for_the_end(fd: int) -> None:
    os.read(fd, 1)
    os._exit(1)
