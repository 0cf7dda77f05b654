"""The worker's side: answer jobs from the pipe, one after the other, until it closes.

Native libraries print to stdout and stderr as they like; both go to the log, and the protocol keeps
a private copy of the original stdout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from hexport.toolchain import lifeline, protocol
from hexport.toolchain.protocol import Message, ProtocolError

Job = Callable[[dict[str, Any]], dict[str, Any]]
_LONGEST_TEXT = 100_000
"""Of an error; native messages can quote whole graphs."""
_EXIT_REFUSED = 3


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
    if not converse(jobs, requests, replies):
        sys.exit(_EXIT_REFUSED)


def converse(jobs: Mapping[str, Job], requests: IO[bytes], replies: IO[bytes]) -> bool:
    """Answer until the stream ends. False: what came was no request, which the parent was told.

    There is no going on after that: nobody knows where in the stream the next message would begin.
    """
    while True:
        try:
            request = protocol.read(requests)
            if request is None:
                return True
            number, name, arguments = _understood(request)
        except ProtocolError as error:
            protocol.write(replies, Message("refused", {"text": str(error)[:_LONGEST_TEXT]}))
            return False
        _send(replies, number, _answer(jobs, name, arguments))


def _understood(request: Message) -> tuple[int, str, dict[str, Any]]:
    match request:
        case Message("job", {"number": int(number), "job": str(name), "arguments": dict(arguments), **rest}):
            if not rest:
                return number, name, arguments
    raise ProtocolError(f"not a job with number and arguments: {request.kind!r}")


def _answer(jobs: Mapping[str, Job], name: str, arguments: dict[str, Any]) -> Message:
    if name not in jobs:
        return _error("UnknownJob", repr(name))
    try:
        return Message("result", {"result": jobs[name](arguments)})
    except JobError as error:
        return _error(error.kind, error.text)
    except MemoryError as error:
        return _error("MemoryError", str(error))
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
        return _error(type(error).__name__, str(error))


def _error(kind: str, text: str) -> Message:
    return Message("error", {"kind": kind, "text": text[:_LONGEST_TEXT]})


def _send(replies: IO[bytes], number: int, reply: Message) -> None:
    """The reply, or why it cannot be sent: too large, or not JSON."""
    try:
        data = protocol.encode(Message(reply.kind, {"number": number, **reply.body}))
    except ProtocolError as error:
        said = _error("ResultUnsendable", str(error))
        data = protocol.encode(Message(said.kind, {"number": number, **said.body}))
    replies.write(data)
    replies.flush()


def _volunteer_for_the_oom_killer() -> None:
    """When the whole machine runs out, the kernel shall take the worker and not the user's shell."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - pathlib adds nothing here
            score.write("1000")
    except OSError:
        return  # not Linux, or not allowed: the limits of the parent still hold
