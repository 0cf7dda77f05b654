"""The worker's side: answer jobs from the pipe, one after the other, until it closes.

Native libraries print to stdout and stderr as they like; both go to the log, and the protocol keeps
a private copy of the original stdout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hexport.toolchain import lifeline, protocol
from hexport.toolchain.protocol import Message

Job = Callable[[dict[str, Any]], dict[str, Any]]


class JobError(Exception):
    """A failure the job understands; ``kind`` names the error type the parent will raise."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def serve(jobs: Mapping[str, Job]) -> None:
    """Say hello, then answer until the parent closes the pipe."""
    lifeline.hold()
    _volunteer_for_the_oom_killer()
    replies = os.fdopen(os.dup(1), "wb")
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for stream in (replies, requests):
            msvcrt.setmode(stream.fileno(), os.O_BINARY)
    protocol.write(replies, Message("hello", {"python": sys.version.split()[0], "pid": os.getpid()}))
    while (request := protocol.read(requests)) is not None:
        protocol.write(replies, _answer(jobs, request))


def _answer(jobs: Mapping[str, Job], request: Message) -> Message:
    name = str(request.body.get("job"))
    if request.kind != "job" or name not in jobs:
        return Message("error", {"kind": "UnknownJob", "text": f"{request.kind} {name!r}"})
    try:
        return Message("result", jobs[name](request.body["arguments"]))
    except JobError as error:
        return Message("error", {"kind": error.kind, "text": error.text})
    except MemoryError as error:
        return Message("error", {"kind": "MemoryError", "text": str(error)})
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
        return Message("error", {"kind": type(error).__name__, "text": str(error)})


def _volunteer_for_the_oom_killer() -> None:
    """When the whole machine runs out, the kernel shall take the worker and not the user's shell."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - pathlib adds nothing here
            score.write("1000")
    except OSError:
        return  # not Linux, or not allowed: the limits of the parent still hold
