"""From a context binary, or the EPContext model that calls it, to a ``.pte`` that ExecuTorch runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.backend.binary_description import BinaryDescription, describe_binary
from hexport.backend.context_binary import ContextBinary, ContextGraph, ContextTensor
from hexport.backend.context_model import ContextModel, read_context_model
from hexport.errors import UsageError
from hexport.executorch.conversion.outcome import Conversion, ConvertedTensor
from hexport.executorch.conversion.proof import prove
from hexport.executorch.conversion.requests import MODULE, MakePteRequest
from hexport.executorch.conversion.sidecar import describe_beside
from hexport.executorch.pte.checks import refuse_newer
from hexport.executorch.pte.failures import NotConvertible
from hexport.executorch.pte.toolchain import find_executorch, with_onnxruntime
from hexport.model import dtypes
from hexport.records import to_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, JobFailed, Limits, Worker
from hexport.whole_file import whole_or_absent
from hexport.wrapping.context_call import ONNX_TYPES
from hexport.wrapping.verb import wrap

_HTP = 6
_MARK = "output_"
_EDGES = frozenset(("QuantizeLinear", "DequantizeLinear"))
# What a job names → what happened.
_SAID = {"ChipUnknown": "executorch has no such chip", "TypeUnknown": "executorch has no such type of tensor"}


@dataclass(frozen=True)
class _Source:
    """What shall be put into a ``.pte``."""

    given: Path
    binary: Path
    graph: str | None
    names: tuple[tuple[str, ...], tuple[str, ...]] | None
    """Inputs and outputs in the order of the ONNX model; None: it is a binary alone."""
    notes: tuple[str, ...] = ()


def to_pte(
    path: Path,
    output: Path,
    *,
    compiled_model: bool,
    graph: str | None,
    target: str | int | None,
    toolchain: str | None,
    limits: Limits | None,
) -> Conversion:
    """Write ``output``, and what it does not say of itself beside it."""
    interpreter = find_executorch(toolchain)
    with temporary_folder() as folder:
        source = _from_model(path, graph, folder) if compiled_model else _Source(path, path, graph, None)
        with with_onnxruntime():
            described = describe_binary(source.binary, limits=limits)
        context = _one_context(path, described)
        chosen = _graph(path, context, source.graph)
        _refuse_names(path, chosen)
        refuse_newer(str(path), context, interpreter)
        soc = _soc(path, context, target)
        orders = _orders(source, chosen)
        request = MakePteRequest(
            str(source.binary.resolve()),
            "",
            chosen.name,
            soc.soc_model,
            chosen.inputs,
            chosen.outputs,
            *orders,
        )
        _make(path, request, output, interpreter, limits)
        inputs = tuple(_tensor(described, chosen, chosen.inputs[number]) for number in orders[0])
        outputs = tuple(_tensor(described, chosen, chosen.outputs[number]) for number in orders[1])
        notes = (*source.notes, *_said_of(inputs, outputs))
        beside = describe_beside(
            output, source.binary, path, interpreter, soc, chosen.name, inputs, outputs, notes
        )
        with with_onnxruntime():
            wrapped = wrap(source.binary, output=folder / "wrapped", limits=limits)
        model = next(Path(one.model) for one in wrapped.graphs if one.graph == chosen.name)
        proof = prove(output, model, chosen.name, soc.soc_model, inputs, outputs, limits)
    files = (str(output), str(beside))
    return Conversion(str(path), files, chosen.name, soc.chip, context.sdk, inputs, outputs, proof, notes)


def _from_model(path: Path, asked: str | None, folder: Path) -> _Source:
    model = read_context_model(path)
    if lost := [node for node in model.cpu_nodes if node.op not in _EDGES]:
        named = ", ".join(f"{node.op} {node.name}".strip() for node in lost[:3])
        raise NotConvertible(
            f"{path} is more than a context binary",
            why=f"{len(lost)} nodes run on the CPU, and would be lost: {named}",
            next="hexport prepare brings all of a model to the NPU; compile that",
        )
    calls = [call for call in model.calls if asked in (None, call.graph)]
    if len(calls) != 1:
        names = ", ".join(model.graphs)
        raise NotConvertible(
            f"{path}: which graph?", why=f"it calls: {names}", next="--graph NAME, one of them"
        )
    (call,) = calls
    notes = []
    if model.cpu_nodes:
        notes.append(
            f"{len(model.cpu_nodes)} nodes that quantise inputs and outputs on the CPU are not in the .pte: "
            "it takes and gives integers"
        )
    return _Source(path, _binary(model, folder), call.graph, (call.inputs, call.outputs), tuple(notes))


def _binary(model: ContextModel, folder: Path) -> Path:
    call, path = model.main_call, model.path
    if call is None:
        raise NotConvertible(
            f"no node of {path} names a binary", next="name the model of its folder that does"
        )
    if call.embedded:
        file = folder / "embedded.bin"
        file.write_bytes(call.cache)
        return file
    file = path.parent / os.fsdecode(call.cache)
    if not file.resolve().is_relative_to(path.parent.resolve()) or not file.is_file():
        raise NotConvertible(f"{path} has no binary", why=f"there is no {file.name} in its folder")
    return file


def _one_context(path: Path, described: BinaryDescription) -> ContextBinary:
    if len(described.contexts) > 1:
        raise NotConvertible(
            f"{path} is for several chips", why="a .pte is for one", next="compile it for one chip"
        )
    (context,) = described.contexts
    if context.backend_id != _HTP:
        raise NotConvertible(f"{path} is not for the NPU (HTP)", next="compile it for the NPU")
    return context


def _graph(path: Path, context: ContextBinary, asked: str | None) -> ContextGraph:
    found = [graph for graph in context.graphs if asked in (None, graph.name)]
    if len(found) != 1:
        names = ", ".join(graph.name for graph in context.graphs) or "none"
        raise NotConvertible(
            f"{path}: which graph?", why=f"it has: {names}", next="--graph NAME, one of them"
        )
    return found[0]


def _refuse_names(path: Path, graph: ContextGraph) -> None:
    """ExecuTorch tells outputs by how their names begin, and adds that only where it is nowhere in them."""
    for tensor in graph.outputs:
        if _MARK in tensor.name and not tensor.name.startswith(_MARK):
            raise NotConvertible(
                f"{path}: ExecuTorch does not give the output {tensor.name!r} back",
                why=f"its name has {_MARK!r} in it, and not at its beginning, and then running it fails",
                next="rename that output in the model, and compile it again",
            )


def _soc(path: Path, context: ContextBinary, target: str | int | None) -> facts.Soc:
    asked = None if target is None else facts.find_target(target)
    if context.soc_model is None:
        if asked is None:
            raise UsageError(f"{path} does not say for which chip it is", next="give --target")
        return asked
    soc = facts.find_target(context.soc_model)
    if asked is not None and asked != soc:
        raise UsageError(
            f"{path} is for {soc.chip}, and --target says {asked.chip}", next="leave --target out"
        )
    return soc


def _orders(source: _Source, graph: ContextGraph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which tensor of the graph is the first of the method, and so on: as the ONNX model has them."""

    def order(tensors: Sequence[ContextTensor], names: Sequence[str] | None) -> tuple[int, ...]:
        own = [tensor.name for tensor in tensors]
        if names is None or sorted(names) != sorted(own) or len(set(own)) != len(own):
            return tuple(range(len(own)))
        return tuple(own.index(name) for name in names)

    inputs, outputs = source.names or (None, None)
    return order(graph.inputs, inputs), order(graph.outputs, outputs)


def _make(
    path: Path, request: MakePteRequest, output: Path, interpreter: Interpreter, limits: Limits | None
) -> None:
    with temporary_folder() as folder, whole_or_absent(output) as part:
        asked = {**to_plain(request), "output": str(part.resolve())}
        try:
            with Worker(MODULE, folder / "native.log", limits=limits, python=interpreter) as worker:
                worker.call("make_pte", asked)
        except JobFailed as error:
            if error.kind not in _SAID:
                raise
            raise NotConvertible(f"{path}: {_SAID[error.kind]}", why=error.text) from error


def _tensor(described: BinaryDescription, graph: ContextGraph, tensor: ContextTensor) -> ConvertedTensor:
    encoding = described.encodings.get((graph.name, tensor.name))
    scale, zero = (encoding.scale, encoding.zero_point) if encoding is not None else (None, None)
    dtype = dtypes.from_number(ONNX_TYPES[tensor.dtype])
    return ConvertedTensor(tensor.name, tensor.name, dtype, tensor.shape, scale, zero)


def _said_of(inputs: tuple[ConvertedTensor, ...], outputs: tuple[ConvertedTensor, ...]) -> tuple[str, ...]:
    quantised = [tensor for tensor in (*inputs, *outputs) if tensor.scale is not None]
    said = (
        "quantised inputs and outputs stay integers; their encodings are in the binary and in the .pte.json"
    )
    return (said,) if quantised else ()
