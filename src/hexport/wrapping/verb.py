"""``wrap``: a context binary from Qualcomm's own tools → EPContext models, one a graph."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from hexport.backend.binary_description import BinaryDescription, describe_binary
from hexport.backend.calling import MODULE, PROVIDER, call
from hexport.backend.context_binary import ContextBinary, ContextGraph, ContextTensor
from hexport.backend.requests import SessionReply, SessionRequest
from hexport.errors import UsageError
from hexport.model import dtypes
from hexport.model.file import UnreadableModel
from hexport.model.labels import WRAPPED
from hexport.records import from_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits, Worker, WorkerError
from hexport.whole_file import whole_or_absent
from hexport.wrapping.context_call import ONNX_TYPES, CannotWrap, call_of
from hexport.wrapping.wrapped import WrappedGraph, WrappedTensor, Wrapping

__all__ = ["Wrapping", "wrap"]

"""The metadata key of the models, whose value says how quantised inputs and outputs are to be read."""
_HTP = 6
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def wrap(binary: str | Path, *, output: str | Path, limits: Limits | None = None) -> Wrapping:
    """Write into the folder ``output`` a model for each graph of ``binary``, and a copy of it."""
    source, folder = Path(binary), Path(output)
    if not source.is_file():
        raise UnreadableModel(
            f"{source} is no file", next="name the .bin that qnn-context-binary-generator wrote"
        )
    described = describe_binary(source, limits=limits)
    context = described.contexts[0]
    if not context.graphs:
        raise CannotWrap(f"{source} holds no graph", why="there is nothing to call in it")
    multi_soc = len(described.contexts) > 1
    names = _file_names(source, context)
    # Written in memory first: a graph that cannot be called is found before anything is on disk.
    models = {
        graph.name: call_of(
            graph,
            source.name,
            build_id=context.build_id,
            multi_soc=multi_soc,
            metadata={WRAPPED: _encodings(described, graph)},
        )
        for graph in context.graphs
    }
    target = _write(source, folder, {names[graph]: data for graph, data in models.items()})
    graphs = tuple(
        _try(graph, folder / names[graph.name], described, multi_soc, limits) for graph in context.graphs
    )
    return Wrapping(
        str(target),
        context.sdk,
        tuple(c.soc_model for c in described.contexts if c.soc_model is not None),
        tuple(dict.fromkeys(c.htp_arch for c in described.contexts if c.htp_arch is not None)),
        graphs,
    )


def _file_names(source: Path, context: ContextBinary) -> dict[str, str]:
    """graph → its model's file, safe on every system and distinct even where case does not count."""
    if len(context.graphs) == 1:
        return {context.graphs[0].name: f"{source.stem}.onnx"}
    names: dict[str, str] = {}
    for number, graph in enumerate(context.graphs):
        stem = f"{source.stem}_{_NAME.sub('_', graph.name)[:100]}"
        taken = {name.casefold() for name in names.values()}
        names[graph.name] = f"{stem}_{number}.onnx" if f"{stem}.onnx".casefold() in taken else f"{stem}.onnx"
    return names


def _write(source: Path, folder: Path, models: dict[str, bytes]) -> Path:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made", why=str(error), next="choose another -o") from error
    target = folder / source.name
    if not (target.exists() and target.samefile(source)):
        with whole_or_absent(target) as part:
            shutil.copyfile(source, part)
    for name, data in models.items():
        with whole_or_absent(folder / name) as part:
            part.write_bytes(data)
    return target


def _encodings(described: BinaryDescription, graph: ContextGraph) -> str:
    found = {
        tensor.name: {"scale": encoding.scale, "zero_point": encoding.zero_point}
        for tensor in (*graph.inputs, *graph.outputs)
        if (encoding := described.encodings.get((graph.name, tensor.name))) is not None
    }
    return json.dumps(found, ensure_ascii=False)


def _try(
    graph: ContextGraph, model: Path, described: BinaryDescription, multi_soc: bool, limits: Limits | None
) -> WrappedGraph:
    context = described.contexts[0]
    loads: bool | None = None
    if context.backend_id != _HTP:
        why = "it is not for the NPU (HTP)"
    elif multi_soc:
        why = "the simulator loads no binary for several chips; the NPU does"
    else:
        loads, why = _load(model, context, limits)
        if not loads and len(context.graphs) > 1:
            loads, why = (
                None,
                f"the simulator loads no binary whose graphs share weights; the NPU does ({why})",
            )
    return WrappedGraph(
        graph.name,
        str(model),
        tuple(_tensor(described, graph, tensor) for tensor in graph.inputs),
        tuple(_tensor(described, graph, tensor) for tensor in graph.outputs),
        loads,
        why,
    )


def _load(model: Path, context: ContextBinary, limits: Limits | None) -> tuple[bool, str]:
    options = {"backend_type": "htp"}
    if context.soc_model is not None:
        options["soc_model"] = str(context.soc_model)
    with temporary_folder() as folder:
        try:
            with Worker(MODULE, folder / "native.log", limits=limits) as worker:
                request = SessionRequest(str(model.resolve()), "", options)
                reply = from_plain(SessionReply, call(worker, "create_session", request))
        except WorkerError as error:
            return False, f"{error.what}: {error.why}"
    if any(part.provider != PROVIDER for part in reply.parts):
        return False, "the session left it to the CPU, which cannot run it"
    return True, ""


def _tensor(described: BinaryDescription, graph: ContextGraph, tensor: ContextTensor) -> WrappedTensor:
    dtype = dtypes.from_number(ONNX_TYPES[tensor.dtype])
    encoding = described.encodings.get((graph.name, tensor.name))
    if encoding is None:
        return WrappedTensor(tensor.name, dtype, tensor.shape)
    return WrappedTensor(tensor.name, dtype, tensor.shape, encoding.scale, encoding.zero_point)
