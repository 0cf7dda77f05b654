"""An ExecuTorch program (.pte): its methods, their signatures and operators, and what its delegates hold.

Read without executorch: the program from the file's own structure, what is inside of QNN's delegates by
Qualcomm's library, as any other context binary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hexport.backend.context_binary import ContextGraph, ContextTensor
from hexport.errors import HexportError
from hexport.executorch.pte.checks import QnnPart, qnn_parts
from hexport.executorch.pte.graph import graph_call, misread
from hexport.executorch.pte.options import QnnOptions
from hexport.executorch.pte.payload import CONTEXT, DLC
from hexport.executorch.pte.program import KNOWN, PteMethod, PteProgram, PteTensor, read_program
from hexport.executorch.pte.sidecar import BadSidecar, Sidecar, TensorSpec, find_sidecar
from hexport.executorch.pte.toolchain import with_onnxruntime
from hexport.inspection.context_file import Context, Graph, inspect_context
from hexport.inspection.section import Section, TensorInfo, amount, section, signature
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

_DLC = "a DLC that the device shall compile (online prepare); the simulator cannot run it"
_READ = "read without executorch"


@dataclass(frozen=True)
class Method:
    """One entry point."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[str, ...]
    """Those that run outside of delegates."""
    delegates: dict[str, int]
    """Backend -> how many parts it runs."""


@dataclass(frozen=True)
class QnnDelegate:
    """A part for Qualcomm's chips. Methods may have their graphs in one binary, which is told once."""

    methods: tuple[str, ...]
    index: int
    """Among the delegates of its method."""
    payload: str
    """``context_binary``, ``dlc`` or ``unknown``."""
    bytes: int
    options: QnnOptions | None
    """None: they are of another executorch."""
    contexts: tuple[Context, ...] = ()
    note: str = ""

    def sections(self) -> Iterator[Section]:
        """For people."""
        rows = [("data", f"{self.payload.replace('_', ' ')}, {amount(self.bytes)}")]
        if self.options is not None:
            rows += _option_rows(self.options)
        yield section(
            f"QNN delegate {self.index} of {', '.join(self.methods)}", [*rows, *_if("note", self.note)]
        )
        for context in self.contexts:
            yield from context.sections()


@dataclass(frozen=True)
class Pte:
    """What the file says of itself."""

    identifier: str
    version: int
    methods: tuple[Method, ...]
    segment_bytes: tuple[int, ...]
    """Sizes of the data behind the program: weights and what delegates compiled."""
    note: str
    qnn: tuple[QnnDelegate, ...] = ()
    scheme: str = ""
    """By the description beside it; empty: it has none."""
    made_by: str = ""

    def sections(self) -> Iterator[Section]:
        """For people."""
        segments = f"{len(self.segment_bytes)}, {amount(sum(self.segment_bytes))}"
        rows = [("schema", f"{self.identifier} {self.version}"), ("data segments", segments)]
        yield section("", [*rows, *_if("scheme", self.scheme), *_if("made by", self.made_by)])
        for method in self.methods:
            yield signature(f"Method {method.name}", method.inputs, method.outputs)
            yield section("", [("delegate", f"{name} ×{count}") for name, count in method.delegates.items()])
            if method.operators:
                yield section("", [("outside of delegates", ", ".join(method.operators))])
        for delegate in self.qnn:
            yield from delegate.sections()
        yield section("", [("note", self.note)])


def inspect_pte(path: Path, limits: Limits | None = None) -> Pte:
    """Read the program, and the binaries of its delegates."""
    program = read_program(path)
    if not program.known:
        note = f"schema {program.identifier} is not known here; {KNOWN.decode()} is"
        return Pte(program.identifier, 0, (), (), note)
    sidecar, note = _sidecar(path)
    return Pte(
        program.identifier,
        program.version,
        tuple(_method(method, sidecar) for method in program.methods),
        program.segments,
        note,
        _qnn(program, limits),
        sidecar.scheme if sidecar else "",
        f"hexport {sidecar.hexport}, executorch {sidecar.executorch}, {sidecar.qnn}" if sidecar else "",
    )


def _sidecar(path: Path) -> tuple[Sidecar | None, str]:
    try:
        return find_sidecar(path), _READ
    except BadSidecar as error:
        return None, f"{_READ}; {error.what}: {error.why}"


def _method(method: PteMethod, sidecar: Sidecar | None) -> Method:
    described = sidecar.method(method.name) if sidecar is not None else None
    return Method(
        method.name,
        _values(method.inputs, described.inputs if described else (), "input"),
        _values(method.outputs, described.outputs if described else (), "output"),
        method.operators,
        dict(Counter(delegate.backend for delegate in method.delegates)),
    )


def _values(
    tensors: tuple[PteTensor | None, ...], described: tuple[TensorSpec, ...], kind: str
) -> tuple[TensorInfo, ...]:
    def told(number: int, tensor: PteTensor | None) -> TensorInfo:
        name = described[number].name if len(described) == len(tensors) else f"{kind}_{number}"
        if tensor is None:
            return TensorInfo(name, "not a tensor", None)
        dims = tuple(f"≤{size}" for size in tensor.sizes) if tensor.varies else tensor.sizes
        return TensorInfo(name, tensor.dtype, None if tensor.unbounded else dims)

    return tuple(told(number, tensor) for number, tensor in enumerate(tensors))


def _qnn(program: PteProgram, limits: Limits | None) -> tuple[QnnDelegate, ...]:
    """Each binary once: methods that share one are told together."""
    found: dict[int, QnnDelegate] = {}
    for method in program.methods:
        for part in qnn_parts(program, method):
            before = found.get(part.payload.start)
            if before is None:
                found[part.payload.start] = _delegate(program, method, part, limits)
            else:
                found[part.payload.start] = replace(before, methods=(*before.methods, method.name))
    return tuple(found.values())


def _delegate(program: PteProgram, method: PteMethod, part: QnnPart, limits: Limits | None) -> QnnDelegate:
    payload = part.payload
    told = QnnDelegate((method.name,), part.index, payload.kind, payload.size, part.options)
    if payload.kind != CONTEXT:
        return replace(told, note=_DLC if payload.kind == DLC else "of no kind that is known here")
    with temporary_folder() as folder, with_onnxruntime():
        payload.write_to(program.path, folder / "context.bin")
        try:
            contexts = inspect_context(folder / "context.bin", limits).contexts
        except HexportError as error:
            return replace(told, note=f"not looked into: {error.what}: {error.why}")
    return replace(told, contexts=contexts, note=_wrong(method, part, contexts))


def _wrong(method: PteMethod, part: QnnPart, contexts: tuple[Context, ...]) -> str:
    graphs = [graph for context in contexts for graph in context.graphs if graph.name == method.name]
    foreign = part.options is not None and part.options.from_context_binary
    call = graph_call(method, part.index, _plain(graphs[0]), foreign=foreign) if graphs else None
    what = misread(method, call) if call is not None else ""
    return f"it computes with other numbers than it is given: {what}" if what else ""


def _plain(graph: Graph) -> ContextGraph:
    def tensors(of: tuple[TensorInfo, ...]) -> tuple[ContextTensor, ...]:
        return tuple(ContextTensor(tensor.name, tensor.dtype, ()) for tensor in of)

    return ContextGraph(graph.name, tensors(graph.inputs), tensors(graph.outputs))


def _option_rows(options: QnnOptions) -> list[tuple[str, str]]:
    return [
        (
            "lowered for",
            f"{options.chip}, v{options.htp_arch}, {options.vtcm_mb} MB of VTCM, {options.backend}",
        ),
        ("precision", options.precision),
        ("performance", options.performance),
        *_if("profiling", "" if options.profiling == "off" else options.profiling),
        *_if("switched on", ", ".join(name.replace("_", " ") for name in options.switched_on)),
        *_if("op packages", ", ".join(options.op_packages)),
    ]


def _if(label: str, text: str) -> list[tuple[str, str]]:
    return [(label, text)] if text else []
