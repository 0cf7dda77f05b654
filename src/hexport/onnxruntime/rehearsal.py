"""A session made in a worker first: what would kill this process, or pretend, does so there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hexport.backend.calling import MODULE, PROVIDER, call
from hexport.backend.context_model import read_context_model
from hexport.backend.native_log import read_native_log
from hexport.backend.requests import SessionReply, SessionRequest
from hexport.errors import HexportError
from hexport.onnxruntime.asking import Wish
from hexport.records import from_plain
from hexport.storage import Store, file_digest, key_of
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Worker

_SAID = "rehearsed"
_EDGES = ("QuantizeLinear", "DequantizeLinear", "Constant")


def rehearse_context(path: Path, wish: Wish) -> None:
    """Load a context model in a worker, once for each content; raises what comes of it."""
    files = [path, *binaries(path)]
    digests = [file_digest(file) for file in files if file.is_file()]

    def make(folder: Path) -> None:
        _session(path, wish)
        (folder / _SAID).touch()

    key = key_of("rehearsal", files=digests, provider=wish.context_provider, entries=wish.session_entries)
    Store().get("rehearsal", key, make)


def on_backend(path: Path, wish: Wish) -> tuple[tuple[str, ...], str]:
    """For backends that compile nothing to keep: the nodes on the CPU; and why the backend did not start."""
    reply, failure = _session(path, wish)
    left = [part for part in reply.parts if part.provider != PROVIDER]
    return tuple(f"{node.op} `{node.name}`" for part in left for node in part.nodes), failure


def is_context(path: Path) -> bool:
    """Whether the model is compiled already."""
    return bool(read_context_model(path).calls)


def binaries(path: Path) -> list[Path]:
    """The files that a context model names."""
    try:
        calls = read_context_model(path).calls
    except HexportError:
        return []
    return [path.parent / os.fsdecode(call.cache) for call in calls if call.cache and not call.embedded]


def cpu_nodes(path: Path) -> tuple[str, ...]:
    """What of a context model is the CPU's; quantising at the edges is by design."""
    found = (node for node in read_context_model(path).cpu_nodes if node.op not in _EDGES)
    return tuple(f"{node.op} `{node.name}`" for node in found)


def _session(path: Path, wish: Wish) -> tuple[SessionReply, str]:
    entries: Mapping[str, str] = wish.session_entries
    # Whether nodes are on the CPU is asked of the answer, so that they can be named.
    entries = {key: value for key, value in entries.items() if key != "session.disable_cpu_ep_fallback"}
    given = wish.context_provider if wish.backend == "htp" else wish.provider
    # A profile is of the session that runs.
    provider = {key: value for key, value in given.items() if not key.startswith("profiling_")}
    with temporary_folder() as folder:
        log = folder / "native.log"
        request = SessionRequest(str(path.resolve()), "", provider, dict(entries))
        with Worker(MODULE, log) as worker:
            reply = from_plain(SessionReply, call(worker, "create_session", request))
        return reply, read_native_log(log).setup_failure or ""
