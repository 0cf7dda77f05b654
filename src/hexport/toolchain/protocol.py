"""Messages between hexport and a worker: a fixed header, then JSON. No pickle, nothing executed.

    offset  size  what
    0       4     b"HXW" and one byte of protocol version
    4       4     length of the JSON body, big-endian
    8       …     the body, ASCII: {"kind": …, "body": {…}}

The same bytes serve any Python version and architecture on either side. The header is the same in all
versions of the protocol, so that either side can tell which one the other speaks.

    the parent says   the worker answers
                      hello    {python, pid}                once, before anything else
    job    {number,   result   {number, result}
            job,      error    {number, kind, text}         the job failed; the worker lives on
            arguments}
    anything else     refused  {text}                       and the worker ends: it has lost its place
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import IO, Any

VERSION = 1
MAX_BODY = 64 * 1024 * 1024
_HEADER = struct.Struct(">3sBI")
_MAGIC = b"HXW"


class ProtocolError(Exception):
    """The bytes are not a message of this protocol and version, or cannot become one."""


@dataclass(frozen=True)
class Message:
    """One message."""

    kind: str
    body: dict[str, Any]


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    try:
        # ASCII, because names of files may hold bytes that are no text, which UTF-8 cannot carry.
        body = json.dumps({"kind": message.kind, "body": message.body}).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > MAX_BODY:
        raise ProtocolError(f"a message of {len(body)} bytes is over the limit of {MAX_BODY}")
    return _HEADER.pack(_MAGIC, VERSION, len(body)) + body


def write(stream: IO[bytes], message: Message) -> None:
    """Send one message. After a :class:`ProtocolError` nothing of it was sent."""
    stream.write(encode(message))
    stream.flush()


def read(stream: IO[bytes]) -> Message | None:
    """Receive one message; None at a clean end of the stream."""
    header = _read_exactly(stream, _HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise ProtocolError("the stream ended inside a header")
    magic, version, length = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise ProtocolError(f"not a hexport message: {header!r}")
    if version != VERSION:
        raise ProtocolError(f"protocol version {version}, this side speaks {VERSION}")
    if length > MAX_BODY:
        raise ProtocolError(f"a message of {length} bytes is over the limit of {MAX_BODY}")
    body = _read_exactly(stream, length)
    if len(body) < length:
        raise ProtocolError("the stream ended inside a message")
    return _parse(body)


def _parse(body: bytes) -> Message:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the body is not JSON: {error}") from error
    match document:
        case {"kind": str(kind), "body": dict(content), **rest} if not rest:
            return Message(kind, content)
        case _:
            raise ProtocolError("the body is not {kind, body}")


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    chunks: list[bytes] = []
    while size:
        chunk = stream.read(size)
        if not chunk:
            break
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
