"""What a QNN delegate's data is: a context binary behind a header, or a DLC that the device shall compile.

offset  size  what
0       4     0x5678ABCD
4       8     a signature, by which delegates that share a context find each other
12      8     the size of the context binary
20      236   nothing; in older files the binary begins here
256     …     the context binary
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from hexport.executorch.pte.program import PteDelegate
from hexport.whole_file import whole_or_absent

CONTEXT, DLC, UNKNOWN = "context_binary", "dlc", "unknown"
_HEADER = struct.Struct("<IqQ")
_MAGIC = 0x5678ABCD
_OFFSETS = (256, _HEADER.size)
_ZIP = b"PK\x03\x04"
_BLOCK = 2**20


@dataclass(frozen=True)
class Payload:
    """A part of a ``.pte``."""

    kind: str
    """``context_binary``, ``dlc`` or ``unknown``."""
    start: int
    size: int

    def write_to(self, pte: Path, output: Path) -> None:
        """Copy it out, whole or not at all."""
        with pte.open("rb") as source, whole_or_absent(output) as part, part.open("wb") as target:
            source.seek(self.start)
            left = self.size
            while left and (block := source.read(min(left, _BLOCK))):
                target.write(block)
                left -= len(block)


def payload_of(pte: Path, delegate: PteDelegate) -> Payload:
    """What a delegate of QNN has."""
    with pte.open("rb") as file:
        file.seek(delegate.start)
        head = file.read(min(delegate.size, _HEADER.size))
    if head.startswith(_ZIP):
        return Payload(DLC, delegate.start, delegate.size)
    if len(head) == _HEADER.size:
        magic, _, size = _HEADER.unpack(head)
        for offset in _OFFSETS:
            if magic == _MAGIC and size and offset + size == delegate.size:
                return Payload(CONTEXT, delegate.start + offset, size)
    return Payload(UNKNOWN, delegate.start, delegate.size)
