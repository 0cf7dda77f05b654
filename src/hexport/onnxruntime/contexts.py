"""A model compiled in a worker, as an EPContext model that can be loaded here; kept in the store by content.

A model whose sizes are fixed goes through ``prepare`` first, which cures or pins what the NPU gets wrong. One
with dynamic dims is compiled as it is: the NPU takes what has fixed sizes in it, which may be nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hexport.backend.compiling import Order, compile_batch
from hexport.backend.failures import CompileFailed, RunFailed
from hexport.compiling.options import CompileOptions
from hexport.compiling.refusals import CompiledOtherwise, NothingCompiled
from hexport.compiling.verb import compile_models
from hexport.errors import HexportError, MissingDependency
from hexport.model import Model, read
from hexport.model.digests import digest_of
from hexport.model.dims import DimsNeeded, Shape, fix_shapes
from hexport.model.external import external_bytes
from hexport.model.labels import PREPARED
from hexport.model.soundness import UnusableGraph
from hexport.model.staging import StagedModel
from hexport.observe.decibels import USABLE_DB
from hexport.onnxruntime.asking import PREPARE, Wish
from hexport.onnxruntime.fallback import warn
from hexport.storage import Store, file_digest, key_of
from hexport.toolchain import Limits

_REPORT = "session.json"
_PINNED = ".on_cpu`"
"""How the name of a Loop ends that holds a pinned node (see ``rewrite/pinning.py``)."""


@dataclass(frozen=True)
class Compiled:
    """What became of a model."""

    context: Path | None
    """None when the NPU takes nothing of it."""
    on_cpu: tuple[str, ...]
    """Nodes that are left to the CPU, each with the reason."""
    source: Path
    """The model that was compiled."""
    dynamic: bool = False


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """For files that a session reads when it is made; Windows may keep them until it ends."""
    return tempfile.TemporaryDirectory(prefix="hexport-", ignore_cleanup_errors=True)


def compiled(
    path: Path, wish: Wish, dims: Mapping[str, int], files: ExitStack, samples: Path | None = None
) -> Compiled:
    """The model for the chip of ``wish``; what the compiler dies of is an exception here."""
    model = read(path)
    named = {d for t in model.graph.inputs.values() for d in t.shape or () if isinstance(d, str)}
    try:
        shapes = fix_shapes(
            model.graph, {n: s for n, s in dims.items() if n in named}, {}, f"hexport build '{path}'"
        )
    except DimsNeeded:
        return _kept(model, wish, _dynamic(model, wish), files, dynamic=True)
    pins: tuple[str, ...] = ()
    if wish.session.get(PREPARE) != "0":
        try:
            model, pins = _prepared(model, wish, shapes, samples)
        except (RunFailed, UnusableGraph) as error:
            if not _was_prepared(model):
                return Compiled(None, (_unproved(error, wish),), path)
    return _kept(model, wish, _fixed(model, wish, shapes, pins), files, shapes=shapes, pins=pins)


def _was_prepared(model: Model) -> bool:
    return any(bytes(entry.key) == PREPARED.encode() for entry in model.proto.metadata_props)


def _unproved(error: HexportError, wish: Wish) -> str:
    """Why nothing is compiled: what the NPU makes of such a model nobody knows."""
    return (
        f"it could not be prepared on random inputs ({error.what}: {error.why}); with real ones: hexport "
        f"prepare MODEL --calib FILE.npz --target {wish.chip.chip} -o OUT.onnx, and a session from OUT.onnx"
    )


def _prepared(
    model: Model, wish: Wish, shapes: Mapping[str, Shape], samples: Path | None
) -> tuple[Model, tuple[str, ...]]:
    try:
        from hexport.preparation.kept import prepared
    except (ImportError, MissingDependency) as error:
        warn(
            f"the model is compiled as it is, without hexport's cures for what the NPU gets wrong: {error}. "
            "They need the package's build extra"
        )
        return model, ()
    digest = file_digest(samples) if samples else ""
    found = prepared(model, wish.chip, shapes, {}, samples, digest, Limits(), _silent)
    db = found.report["after"]["sqnr_db"]  # a word where it is infinite
    if db == "broken" or (isinstance(db, float) and db < USABLE_DB):
        near = db if isinstance(db, str) else f"only {db:.0f} dB from the CPU's"
        warn(f"on random inputs the NPU's answer is {near}. Compare it on real ones: hexport verify")
    return read(found.path), tuple(f"{p['op']} `{p['node']}`: {p['reason']}" for p in found.report["pins"])


def _kept(
    model: Model,
    wish: Wish,
    make: Callable[[Path], None],
    files: ExitStack,
    *,
    dynamic: bool = False,
    shapes: Mapping[str, Shape] | None = None,
    pins: tuple[str, ...] = (),
) -> Compiled:
    key = key_of(
        "session",
        model=digest_of(model),
        shapes={name: list(shape) for name, shape in (shapes or {}).items()},
        pins=pins,
        chip=wish.chip.soc_model,
        options=wish.compiler_options,
    )
    if any(name.startswith("dump_") for name in wish.compiler_options):
        # The compiler is to write files elsewhere, which a result from the store would not do.
        folder = Path(files.enter_context(temporary_folder()))
        make(folder)
    else:
        folder, _ = Store().get("session", key, make)
    report = json.loads((folder / _REPORT).read_text("utf-8"))
    context = folder / report["context"] if report["context"] else None
    return Compiled(context, tuple(report["on_cpu"]), model.path, dynamic)


def _fixed(
    model: Model, wish: Wish, shapes: Mapping[str, Shape], pins: tuple[str, ...]
) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        try:
            done = compile_models(
                [model.path],
                [wish.chip.soc_model],
                folder,
                options=CompileOptions(more=wish.compiler_options),
                input_shapes={n: s for n, s in shapes.items() if n in model.graph.inputs},
            )
        except NothingCompiled as error:
            _write(folder, "", (*pins, *_unpinned(error.why.splitlines())))
            return
        except CompiledOtherwise as error:
            if wish.compiler_options:
                raise
            # Nothing was asked for that could have been missed: the binary is not trusted, that is all.
            _write(folder, "", (f"{error.what}: {error.why}",))
            return
        result = done.models[0]
        left = [f"{n.op} `{n.name}`: {n.reason}" for n in result.verdict.cpu_nodes if not n.inside]
        _write(folder, result.path.name, (*pins, *_unpinned(left)))

    return make


def _unpinned(lines: Sequence[str]) -> list[str]:
    """Without the Loops that hold pinned nodes, of which the compiler only says that they are Loops."""
    return [line for line in lines if _PINNED not in line]


def _dynamic(model: Model, wish: Wish) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        provider = {
            "backend_type": "htp",
            "soc_model": str(wish.chip.soc_model),
            **wish.compiler_options,
        }
        data = str(model.path.parent.resolve()) if external_bytes(model) else ""
        with tempfile.TemporaryDirectory(prefix="hexport-") as work:
            order = Order(StagedModel(model.path.resolve(), model.path, data), "dynamic_ctx.onnx")
            try:
                batch = compile_batch([order], provider, Path(work))
            except CompileFailed as error:
                # It takes a part whose sizes are fixed, or whose size is nothing, and then cannot do it.
                _write(folder, "", (f"its sizes are not fixed, and the compiler stops: {error.why}",))
                return
            product = batch.products[0].model
            # Where the compiler took nothing the user's own names are left; else the compiled model's.
            nodes = product.cpu_nodes if product.calls else model.graph.nodes
            left = tuple(f"{node.op} `{node.name}`: its sizes are not fixed" for node in nodes)
            if product.calls:
                for file in filter(None, (product.path, batch.binary)):
                    (folder / file.name).write_bytes(file.read_bytes())
            _write(folder, product.path.name if product.calls else "", left)

    return make


def _write(folder: Path, context: str, on_cpu: tuple[str, ...]) -> None:
    (folder / _REPORT).write_text(json.dumps({"context": context, "on_cpu": on_cpu}), "utf-8")


def _silent(text: str) -> None:
    """Steps are for the command line to tell."""
