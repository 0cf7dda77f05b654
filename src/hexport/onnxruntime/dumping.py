"""Context files where the session's entries want them: ``ep.context_enable`` and its companions."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hexport.backend.context_model import read_context_model
from hexport.compiling.options import CompileOptions
from hexport.compiling.verb import compile_models
from hexport.errors import HexportError, UsageError
from hexport.model import read
from hexport.model.external import bring_along
from hexport.model.file import load, nodes
from hexport.model.labels import COMPILED_OP
from hexport.onnxruntime.asking import Wish
from hexport.onnxruntime.contexts import Compiled
from hexport.onnxruntime.fallback import warn
from hexport.storage import Store, file_digest, key_of


class ContextFileExists(HexportError, FileExistsError):
    """A context model was to be written over a file that is none."""

    code = "HX953"


class SharedContextUnloadable(HexportError, RuntimeError):
    """A weight-shared context, which the simulator cannot load, and of which nothing else is known here."""

    code = "HX954"


@dataclass(frozen=True)
class _Shared:
    """A model that waits for the last of those that share their weights."""

    done: Compiled
    file: Path


_waiting: list[_Shared] = []
_lock = threading.Lock()


def dump(done: Compiled, model: Path | None, wish: Wish) -> None:
    """Write the context model that the session's entries ask for, if they do."""
    if wish.session.get("ep.context_enable") != "1" or done.context is None:
        return
    file = _destination(model, wish)
    if wish.session.get("ep.share_ep_contexts") == "1":
        _share(_Shared(done, file), wish)
        return
    _publish([done.context], [file], embed=wish.session.get("ep.context_embed_mode") == "1")


def apart(model: Path, error: HexportError) -> Path:
    """What serves in the simulator for a weight-shared context of this machine, which it cannot load."""

    def unknown(_: Path) -> None:
        raise SharedContextUnloadable(
            f"{model} shares its binary with other models, and the simulator cannot load such a binary",
            why=f"it was not made on this machine, or the cache was cleared since; {error.why}",
            next="run it on a device; or make the session from the model that it was compiled from",
        )

    folder, _ = Store().get("apart", _apart_key(model), unknown)
    warn(f"the simulator cannot load weight-shared binaries: {model} runs from its graph compiled apart")
    return next(folder.glob("*.onnx"))


def _destination(model: Path | None, wish: Wish) -> Path:
    given = wish.session.get("ep.context_file_path")
    if not given and model is None:
        raise UsageError(
            "ep.context_enable: the model was given as bytes, so its context has no name",
            next="say where it goes with ep.context_file_path",
        )
    file = Path(given) if given else Path(str(model)).with_name(f"{Path(str(model)).stem}_ctx.onnx")
    if not file.parent.is_dir():
        raise UsageError(f"ep.context_file_path: there is no folder {file.parent}", next="make it first")
    if file.exists() and not _is_context(file):
        raise ContextFileExists(
            f"{file} is there and is no context model",
            why="ep.context_enable would write over it",
            next="remove it, or say another place with ep.context_file_path",
        )
    return file


def _is_context(file: Path) -> bool:
    try:
        return bool(read_context_model(file).calls)
    except HexportError:
        return False


def _share(one: _Shared, wish: Wish) -> None:
    with _lock:
        _waiting.append(one)
        if wish.session.get("ep.stop_share_ep_contexts") != "1":
            return
        models, _waiting[:] = list(_waiting), []
    with TemporaryDirectory(prefix="hexport-") as folder:
        sources = [_named(m, Path(folder) / f"m{n}") for n, m in enumerate(models)]
        made = compile_models(
            sources,
            [wish.chip.soc_model],
            Path(folder),
            options=CompileOptions(more=wish.compiler_options),
            share_weights=len(sources) > 1,
        )
        _publish([model.path for model in made.models], [m.file for m in models], embed=False)
    for model in models:
        _remember(model)


def _named(model: _Shared, folder: Path) -> Path:
    """A copy of the model under the name that its context will have."""
    folder.mkdir()
    copy = folder / f"{model.file.stem}.onnx"
    shutil.copyfile(model.done.source, copy)
    bring_along(read(model.done.source), copy)
    return copy


def _remember(model: _Shared) -> None:
    def copy(folder: Path) -> None:
        assert model.done.context is not None
        _publish([model.done.context], [folder / "apart.onnx"], embed=False)

    Store().get("apart", _apart_key(model.file), copy)


def _apart_key(wrapper: Path) -> str:
    return key_of("apart", model=file_digest(wrapper))


def _publish(contexts: Sequence[Path], files: Sequence[Path], *, embed: bool) -> None:
    """Copies with the binary renamed after the last file: contexts of one folder must not share a name."""
    name = f"{files[-1].stem}_qnn.bin"
    for context, file in zip(contexts, files, strict=True):
        proto = load(context)
        binaries = set()
        for node in nodes(proto.graph):
            attributes = {bytes(a.name): a for a in node.attribute}
            cache = attributes.get(b"ep_cache_context")
            if node.op_type != COMPILED_OP.encode() or cache is None or not cache.s:
                continue
            binaries.add(os.fsdecode(bytes(cache.s)))
            cache.s = _whole(context, bytes(cache.s)) if embed else name.encode()
            attributes[b"embed_mode"].i = int(embed)
        if not embed:
            for binary in binaries:
                _replace(file.with_name(name), (context.parent / binary).read_bytes())
        _replace(file, proto.SerializeToString())


def _whole(context: Path, name: bytes) -> bytes:
    return (context.parent / os.fsdecode(name)).read_bytes()


def _replace(file: Path, content: bytes) -> None:
    """There whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    part.replace(file)
