"""From a ``.pte`` to an EPContext model: the context binary is taken out, and an ONNX file calls it."""

from __future__ import annotations

from pathlib import Path

from hexport.backend.binary_description import BinaryDescription
from hexport.backend.context_binary import ContextGraph, ContextTensor
from hexport.executorch.conversion.outcome import Conversion, ConvertedTensor, Proof
from hexport.executorch.conversion.proof import prove
from hexport.executorch.pte.checks import QnnPart, describe_part, qnn_parts
from hexport.executorch.pte.failures import NotConvertible
from hexport.executorch.pte.graph import GraphCall, Meeting, graph_call, misread
from hexport.executorch.pte.payload import CONTEXT, DLC
from hexport.executorch.pte.program import PteMethod, PteProgram, read_known
from hexport.executorch.pte.signature import Signature, signature_of
from hexport.executorch.pte.toolchain import with_onnxruntime
from hexport.model import dtypes
from hexport.packaging.manifest import Tensor
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.wrapping.context_call import ONNX_TYPES, CannotWrap
from hexport.wrapping.verb import Wrapping, wrap

BINARY, DLC_FILE = ".bin", ".dlc"


def to_onnx(
    path: Path, output: Path, *, method: str | None, delegate: int | None, limits: Limits | None
) -> Conversion:
    """Write ``output`` and its binary beside it; of ``.bin`` or ``.dlc`` the delegate's data alone."""
    program = read_known(path)
    signature = signature_of(program, method)
    part, whole = _choose(program, signature.method, delegate)
    if output.suffix.lower() in (BINARY, DLC_FILE):
        return _data_alone(program, signature, part, output)
    if part.payload.kind != CONTEXT:
        raise _no_context(program.path, part)
    described = describe_part(program, part.payload, limits)
    graph = _graph(program, signature.method, described)
    with temporary_folder() as folder, with_onnxruntime():
        binary = folder / f"{output.stem}{BINARY}"
        part.payload.write_to(path, binary)
        wrapped = wrap(binary, output=output.parent, limits=limits)
    model = _model_of(wrapped, graph)
    call = _call(program, signature.method, part, graph) if whole else None
    inputs, outputs = _paired(signature, call, graph, described)
    context = described.contexts[0]
    proof = Proof(None, "it is one part of several, which the .pte runs together")
    if call is not None and context.soc_model is not None:
        proof = prove(path, model, signature.method.name, context.soc_model, inputs, outputs, limits)
    others = [one.model for one in wrapped.graphs if Path(one.model) != model]
    return Conversion(
        str(path),
        (str(model), wrapped.binary, *others),
        signature.method.name,
        part.options.chip if part.options is not None else "",
        context.sdk,
        inputs,
        outputs,
        proof,
        _notes(signature, wrapped, inputs, outputs),
    )


def _choose(program: PteProgram, method: PteMethod, delegate: int | None) -> tuple[QnnPart, bool]:
    """The part that is meant, and whether it is all of the method."""
    parts = qnn_parts(program, method)
    if not parts:
        raise NotConvertible(
            f"nothing of {program.path} is for the NPU",
            why=f"method {method.name!r} has no part for QNN, and so no context binary",
            next="lower the model for a chip of Qualcomm's",
        )
    whole = len(method.delegates) == 1 and not method.kernel_calls
    if delegate is None:
        if not whole:
            raise _in_pieces(program.path, method, parts)
        return parts[0], True
    found = next((part for part in parts if part.index == delegate), None)
    if found is None:
        raise NotConvertible(
            f"{program.path} has no QNN delegate {delegate}",
            why=f"method {method.name!r} has: {', '.join(str(part.index) for part in parts)}",
        )
    return found, whole


def _in_pieces(path: Path, method: PteMethod, parts: tuple[QnnPart, ...]) -> NotConvertible:
    rest = [f"{method.kernel_calls} operators on the CPU ({', '.join(method.operators)})"] * bool(
        method.kernel_calls
    )
    others = len(method.delegates) - len(parts)
    rest += [f"{others} parts of other backends"] * bool(others)
    return NotConvertible(
        f"{path} is more than one context binary",
        why=f"method {method.name!r} has {len(parts)} parts on the NPU" + "".join(f", {one}" for one in rest),
        next=f"take one part out with --delegate {parts[0].index}, or lower it so that the NPU has all of it",
    )


def _data_alone(program: PteProgram, signature: Signature, part: QnnPart, output: Path) -> Conversion:
    wanted = CONTEXT if output.suffix.lower() == BINARY else DLC
    if part.payload.kind != wanted:
        raise NotConvertible(
            f"{output.name}: the delegate of {program.path} holds a {part.payload.kind.replace('_', ' ')}",
            next=f"-o {output.stem}{BINARY if part.payload.kind == CONTEXT else DLC_FILE}",
        )
    part.payload.write_to(program.path, output)
    chip = part.options.chip if part.options is not None else ""
    proof = Proof(None, "the bytes were taken out as they are")
    return Conversion(str(program.path), (str(output),), signature.method.name, chip, "", (), (), proof)


def _no_context(path: Path, part: QnnPart) -> NotConvertible:
    is_dlc = part.payload.kind == DLC
    return NotConvertible(
        f"{path} holds no context binary",
        why="it was lowered for online prepare, and has a DLC that the device compiles"
        if is_dlc
        else "its delegate's data is of a kind that is not known here",
        next="lower it without online prepare; -o FILE.dlc takes the DLC out" if is_dlc else "lower it again",
    )


def _graph(program: PteProgram, method: PteMethod, described: BinaryDescription) -> ContextGraph:
    for graph in described.contexts[0].graphs:
        if graph.name == method.name:
            return graph
    names = ", ".join(graph.name for graph in described.contexts[0].graphs)
    raise NotConvertible(
        f"{program.path}: the binary has no graph {method.name!r}", why=f"it has: {names or 'none'}"
    )


def _model_of(wrapped: Wrapping, graph: ContextGraph) -> Path:
    return next(Path(one.model) for one in wrapped.graphs if one.graph == graph.name)


def _call(program: PteProgram, method: PteMethod, part: QnnPart, graph: ContextGraph) -> GraphCall:
    foreign = part.options is not None and part.options.from_context_binary
    call = graph_call(method, part.index, graph, foreign=foreign)
    known = {meeting.value for meeting in (*call.inputs, *call.outputs)} if call is not None else set()
    if call is None or not {*method.input_values, *method.output_values} <= known:
        raise NotConvertible(
            f"{program.path}: what the method takes and gives is not what its graph does",
            why="an input or output does not go through the part on the NPU",
            next="lower a module whose inputs are all used, and whose outputs are all computed",
        )
    if what := misread(method, call):
        raise NotConvertible(f"{program.path} is broken", why=what, next="lower it again")
    return call


def _paired(
    signature: Signature, call: GraphCall | None, graph: ContextGraph, described: BinaryDescription
) -> tuple[tuple[ConvertedTensor, ...], tuple[ConvertedTensor, ...]]:
    """In the order of the ``.pte``; of one part of several in that of the graph, by its own names."""

    def told(name: str, tensor: ContextTensor) -> ConvertedTensor:
        encoding = described.encodings.get((graph.name, tensor.name))
        scale, zero = (encoding.scale, encoding.zero_point) if encoding is not None else (None, None)
        if tensor.dtype not in ONNX_TYPES:
            raise CannotWrap(f"{tensor.name!r} is {tensor.dtype}, which ONNX Runtime does not pass")
        dtype = dtypes.from_number(ONNX_TYPES[tensor.dtype])
        return ConvertedTensor(name, tensor.name, dtype, tensor.shape, scale, zero)

    def side(
        values: tuple[int, ...], named: tuple[Tensor, ...], meetings: tuple[Meeting, ...]
    ) -> tuple[ConvertedTensor, ...]:
        by_value = {meeting.value: meeting.tensor for meeting in meetings}
        return tuple(told(one.name, by_value[value]) for value, one in zip(values, named, strict=True))

    if call is None:
        alone = [tuple(told(one.name, one) for one in tensors) for tensors in (graph.inputs, graph.outputs)]
        return alone[0], alone[1]
    method, contract = signature.method, signature.contract
    return (
        side(method.input_values, contract.inputs, call.inputs),
        side(method.output_values, contract.outputs, call.outputs),
    )


def _notes(
    signature: Signature,
    wrapped: Wrapping,
    inputs: tuple[ConvertedTensor, ...],
    outputs: tuple[ConvertedTensor, ...],
) -> tuple[str, ...]:
    notes = ["inputs and outputs of the ONNX model have the binary's names, by which the provider finds them"]
    if any(tensor.scale is not None for tensor in (*inputs, *outputs)):
        notes.append(
            "quantised inputs and outputs stay integers; their encodings are in the model's metadata"
        )
    notes += [f"{one.graph}: {one.loads_why}" for one in wrapped.graphs if one.loads_why]
    return (*notes, *signature.notes)
