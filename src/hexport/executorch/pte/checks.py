"""What a ``.pte`` tells before it is run: whether this machine's simulator can load it, and reads it right.

Without this look some files end in a crash of native code, and one kind in numbers that mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.backend.binary_description import BinaryDescription, describe_binary
from hexport.backend.context_binary import ContextBinary
from hexport.executorch.pte.failures import ContextTooNew, PteNotRunnable
from hexport.executorch.pte.graph import graph_call, misread
from hexport.executorch.pte.options import HTP, QnnOptions, read_options
from hexport.executorch.pte.payload import CONTEXT, DLC, Payload, payload_of
from hexport.executorch.pte.program import QNN, PteMethod, PteProgram
from hexport.executorch.pte.toolchain import qnn_sdk_of
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, Limits, only_here


@dataclass(frozen=True)
class QnnPart:
    """A delegate of QNN, looked into as far as that needs no native code."""

    index: int
    """Among the delegates of its method."""
    options: QnnOptions | None
    payload: Payload


def qnn_parts(program: PteProgram, method: PteMethod) -> tuple[QnnPart, ...]:
    """Those of one method."""
    return tuple(
        QnnPart(index, read_options(delegate.spec), payload_of(program.path, delegate))
        for index, delegate in enumerate(method.delegates)
        if delegate.backend == QNN
    )


def describe_part(program: PteProgram, payload: Payload, limits: Limits | None) -> BinaryDescription:
    """What is in its context binary. Read by hexport's own QNN, which is the newest at hand."""
    with temporary_folder() as folder, only_here(None):
        binary = folder / "context.bin"
        payload.write_to(program.path, binary)
        return describe_binary(binary, limits=limits)


def refuse_unrunnable(
    program: PteProgram, method: PteMethod, interpreter: Interpreter, limits: Limits | None
) -> tuple[QnnPart, ...]:
    """The parts for the NPU, if the simulator can run all of them."""
    if not facts.simulates_npu(interpreter.platform):
        raise PteNotRunnable(
            f"{program.path} cannot be run here",
            why=f"Qualcomm's simulator is for Linux x86_64, and this is {interpreter.platform}",
            next="run it on a device with ExecuTorch's qnn_executor_runner",
        )
    parts = qnn_parts(program, method)
    for part in parts:
        _refuse_kind(program.path, part)
        if part.payload.kind == CONTEXT:
            _refuse_context(program, method, part, interpreter, limits)
    return parts


def chip_of(parts: tuple[QnnPart, ...]) -> str:
    """For which chip they are; empty: they do not say."""
    return next((part.options.chip for part in parts if part.options is not None), "")


def refuse_newer(what: str, context: ContextBinary, interpreter: Interpreter) -> None:
    """Say it before QNN does: a context binary is never loaded by an older QNN than made it."""
    here = qnn_sdk_of(interpreter)
    if here is None or facts.parse_version(context.sdk) <= facts.parse_version(here):
        return
    release = interpreter.packages.get("onnxruntime-qnn", "")
    raise ContextTooNew(
        f"{what} was compiled by QNN SDK {context.sdk}",
        why=f"the toolchain {interpreter.name!r} has QNN SDK {here}, which loads its own and older ones",
        next=f"compile it with that QNN: hexport toolchain add onnxruntime-qnn=={release}, "
        f"then hexport compile … --toolchain onnxruntime-qnn-{release}",
    )


def _refuse_kind(path: Path, part: QnnPart) -> None:
    options = part.options
    if part.payload.kind == DLC or (options is not None and options.online_prepare):
        raise PteNotRunnable(
            f"{path} cannot be run on the simulator",
            why="it was lowered for online prepare: the device shall compile it, and on x86 that crashes",
            next="lower it without online prepare to run it here; it is checked on the device only",
        )
    if options is not None and options.backend != HTP:
        raise PteNotRunnable(
            f"{path} cannot be run on the simulator",
            why=f"it is for QNN's {options.backend.upper()} backend, and the simulator is that of the NPU",
            next="lower it for the NPU, or run it on a device",
        )
    if options is not None and options.slc_allocator:
        raise PteNotRunnable(
            f"{path} cannot be run on the simulator",
            why="it was lowered to use the system level cache, which only a device has: x86 does not load it",
            next="lower it without --slc-allocator to run it here; it is checked on the device only",
        )


def _refuse_context(
    program: PteProgram, method: PteMethod, part: QnnPart, interpreter: Interpreter, limits: Limits | None
) -> None:
    described = describe_part(program, part.payload, limits)
    context = described.contexts[0]
    refuse_newer(str(program.path), context, interpreter)
    options = part.options
    if options is not None and options.weight_sharing and len(context.graphs) > 1:
        names = ", ".join(graph.name for graph in context.graphs)
        raise PteNotRunnable(
            f"{program.path} cannot be run on the simulator",
            why=f"its graphs ({names}) share weights, and the simulator loads no such binary; the NPU does",
            next="lower each method by itself, without weight sharing, to run it here",
        )
    graph = next((graph for graph in context.graphs if graph.name == method.name), None)
    foreign = options is not None and options.from_context_binary
    call = graph_call(method, part.index, graph, foreign=foreign) if graph is not None else None
    if call is not None and (what := misread(method, call)):
        raise PteNotRunnable(
            f"{program.path} would compute with other numbers than it is given",
            why=f"{what}: ExecuTorch hands the bytes over as they are",
            next="lower it again: from contiguous example inputs; quantised ones need the pass BuildQuantIo",
        )
