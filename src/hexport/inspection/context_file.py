"""A context binary: for which chip, by which SDK, and the graphs in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.backend.binary_description import BinaryDescription, describe_binary
from hexport.backend.context_binary import ContextBinary, ContextGraph, ContextTensor
from hexport.inspection.section import Section, TensorInfo, amount, section, signature
from hexport.toolchain import Limits

_BACKENDS = {3: "CPU", 4: "GPU", 5: "DSP", 6: "HTP"}


@dataclass(frozen=True)
class Graph:
    """One graph that the NPU runs."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    vtcm_mb: int | None
    spill_fill_bytes: int | None


@dataclass(frozen=True)
class Context:
    """What one context binary says of itself. None: it does not say."""

    chip: str
    """The chip's part number; empty when the binary names none that hexport knows."""
    soc_model: int | None
    htp_arch: int | None
    backend: str
    sdk: str
    build_id: str
    backend_api: str
    blob_version: str
    blob_bytes: int
    graphs: tuple[Graph, ...]

    def sections(self) -> Iterator[Section]:
        """For people."""
        yield section(
            f"For {self.chip or 'a chip that it does not name'}",
            [
                ("SoC, Hexagon", f"{self.soc_model or '–'}, v{self.htp_arch or '–'}"),
                ("backend", f"{self.backend}, API {self.backend_api}"),
                ("QNN SDK", f"{self.sdk} ({self.build_id})"),
                ("code", f"{amount(self.blob_bytes)}, version {self.blob_version}"),
            ],
        )
        for graph in self.graphs:
            yield signature(f"Graph {graph.name}", graph.inputs, graph.outputs)
            if graph.vtcm_mb is not None:
                spills = amount(graph.spill_fill_bytes or 0)
                yield section("", [("VTCM", f"{graph.vtcm_mb} MB"), ("spill-fill buffer", spills)])


@dataclass(frozen=True)
class ContextFile:
    """A file with one context binary, or with one a chip."""

    contexts: tuple[Context, ...]

    def sections(self) -> Iterator[Section]:
        """For people."""
        for context in self.contexts:
            yield from context.sections()


def inspect_context(path: Path, limits: Limits | None = None) -> ContextFile:
    """Ask Qualcomm's own library, in a worker."""
    described = describe_binary(path, limits=limits)
    return ContextFile(tuple(_context(described, context) for context in described.contexts))


def _context(described: BinaryDescription, context: ContextBinary) -> Context:
    chips = {soc.soc_model: soc.chip for soc in facts.targets()}
    return Context(
        chip=chips.get(context.soc_model or -1, ""),
        soc_model=context.soc_model,
        htp_arch=context.htp_arch,
        backend=_BACKENDS.get(context.backend_id, f"backend {context.backend_id}"),
        sdk=context.sdk,
        build_id=context.build_id,
        backend_api=context.backend_api,
        blob_version=context.blob_version,
        blob_bytes=context.blob_bytes,
        graphs=tuple(_graph(described, graph) for graph in context.graphs),
    )


def _graph(described: BinaryDescription, graph: ContextGraph) -> Graph:
    def told(tensor: ContextTensor) -> TensorInfo:
        encoding = described.encodings.get((graph.name, tensor.name))
        if encoding is None:
            return TensorInfo(tensor.name, tensor.dtype, tensor.shape)
        return TensorInfo(tensor.name, tensor.dtype, tensor.shape, encoding.scale, encoding.zero_point)

    inputs, outputs = tuple(map(told, graph.inputs)), tuple(map(told, graph.outputs))
    return Graph(graph.name, inputs, outputs, graph.vtcm_mb, graph.spill_fill_bytes)
