"""What the simulator can run of a package: a binary for one chip and one bucket, or what it was made from.

It loads no binary that shares weights between buckets or serves several chips. For those the package holds
the model that was compiled; it is compiled once more, for the bucket alone, and kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from hexport import facts
from hexport.backend.context_model import read_context_model
from hexport.packaging import Package
from hexport.packaging.manifest import (
    CONTEXT_BINARY,
    MODEL_DATA,
    SOURCE_MODEL,
    Artefact,
    Bucket,
    Target,
)
from hexport.runtime.failures import BackendMissing
from hexport.storage import Store, key_of
from hexport.toolchain import Limits

_STEP = "bucket"


def simulator_refusal(package: Package, model: Artefact, target: Target, bucket: Bucket) -> str:
    """Why the simulator cannot load a context model; empty: it can."""
    held = binary_of(package, model, target, bucket) or model
    chips = held.targets or tuple(one.name for one in package.manifest.targets)
    if len(chips) > 1:
        return f"its binary serves several chips ({', '.join(chips)}), and the simulator loads no such"
    if set(held.graphs) - set(model.graphs):
        return "its binary shares weights with other buckets, and the simulator loads no such"
    return ""


def binary_of(package: Package, model: Artefact, target: Target, bucket: Bucket) -> Artefact | None:
    """The binary that a context model names; None: it holds it itself."""
    call = read_context_model(package.path(model)).main_call
    name = "" if call is None or call.embedded else os.fsdecode(call.cache)
    place = PurePosixPath(model.path).parent / name
    binaries = package.find(CONTEXT_BINARY, target=target.name, bucket=bucket.name)
    return next((binary for binary in binaries if PurePosixPath(binary.path) == place), None)


def compiled_apart(
    package: Package,
    target: Target,
    bucket: Bucket,
    reason: str,
    say: Callable[[str], None],
    limits: Limits | None = None,
) -> Path:
    """A context model of the bucket alone, from the packaged model; made in a worker, once."""
    sources = package.find(SOURCE_MODEL, target=target.name, bucket=bucket.name)
    if not sources:
        raise BackendMissing(
            f"bucket {bucket.name} of {package.folder} cannot be run on the simulator",
            why=f"{reason}, and the package does not hold the model that it was compiled from",
            next="run it on the device, use backend 'cpu', or build with a binary for each bucket",
        )
    data = package.find(MODEL_DATA)
    (path, *_) = package.verified(sources[0], *data)
    soc = facts.find_target(target.soc_model)
    say(f"bucket {bucket.name} is compiled by itself for the simulator: {reason}")

    def make(folder: Path) -> None:
        from hexport.compiling.verb import compile_models

        compile_models([path], [soc.soc_model], folder, limits=limits)

    key = key_of(
        _STEP, model=sources[0].sha256, data=[one.sha256 for one in data], name=path.name, soc=soc.soc_model
    )
    folder, _ = Store().get(_STEP, key, make)
    (model,) = folder.glob("*.onnx")
    return model
