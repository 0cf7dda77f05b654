"""All that can be told of a context binary, asked of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport.backend.calling import call
from hexport.backend.context_binary import ContextBinary, ContextReply, ContextRequest
from hexport.backend.context_encodings import MODULE, Encoding, EncodingsReply
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker


@dataclass(frozen=True)
class BinaryDescription:
    """A context binary file."""

    contexts: tuple[ContextBinary, ...]
    """One; or one a chip, if the file is a multi-SoC container."""
    encodings: dict[tuple[str, str], Encoding]
    """(graph, tensor) -> how it is quantised; tensors that are not quantised as a whole are not there."""


def describe_binary(path: Path, *, limits: Limits | None = None) -> BinaryDescription:
    """Read the file in a worker: a damaged one can crash the library that reads it."""
    request = ContextRequest(str(path.resolve()))
    with (
        temporary_folder() as folder,
        Worker(MODULE, folder / "native.log", limits=limits) as worker,
    ):
        contexts = from_plain(ContextReply, call(worker, "read_context", request)).binaries
        encodings = from_plain(EncodingsReply, call(worker, "read_encodings", request)).encodings
    return BinaryDescription(contexts, {(found.graph, found.tensor): found for found in encodings})
