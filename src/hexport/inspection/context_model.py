"""An EPContext model: which graphs it calls, where their binary is, and what that holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexport.backend.context_model import GraphCall, read_context_model
from hexport.inspection.context_file import ContextFile, inspect_context
from hexport.inspection.onnx_model import OnnxModel, inspect_onnx
from hexport.inspection.section import Section, section, signature
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits


@dataclass(frozen=True)
class Call:
    """One EPContext node."""

    node: str
    graph: str
    embedded: bool
    binary: str
    """The file that it names; empty when the binary is in the model, or another node names it."""
    sdk_build: str


@dataclass(frozen=True)
class ContextModelInfo:
    """The model, and its binary if that is there."""

    calls: tuple[Call, ...]
    cpu_nodes: tuple[str, ...]
    model: OnnxModel
    binary: ContextFile | None
    missing: str
    """Why the binary could not be looked at; empty when it was."""

    def sections(self) -> Iterator[Section]:
        """For people."""
        rows = [
            (call.graph, "in this file" if call.embedded else call.binary or "as above", call.sdk_build)
            for call in self.calls
        ]
        yield section("EPContext nodes", rows, "graph", "binary", "made by SDK")
        if self.cpu_nodes:
            yield section("On the CPU", [(name,) for name in self.cpu_nodes], "node")
        # Of the model itself only what the caller sees: its own opset and weights are of no use.
        yield signature("Signature", self.model.inputs, self.model.outputs)
        if self.binary is None:
            yield section("", [("binary", self.missing)])
        else:
            yield from self.binary.sections()


def inspect_context_model(path: Path, limits: Limits | None = None) -> ContextModelInfo:
    """Read the model, and the binary that it names or holds."""
    read = read_context_model(path)
    calls = tuple(
        Call(
            call.name,
            call.graph,
            call.embedded,
            "" if call.embedded or not call.main else os.fsdecode(call.cache),
            call.build_id,
        )
        for call in read.calls
    )
    binary, missing = _binary(path, read.main_call, limits)
    names = tuple(f"{node.op} {node.name}".strip() for node in read.cpu_nodes)
    return ContextModelInfo(calls, names, inspect_onnx(path), binary, missing)


def _binary(path: Path, call: GraphCall | None, limits: Limits | None) -> tuple[ContextFile | None, str]:
    if call is None:
        return None, "no node of this model names one; another model of the same folder does"
    if call.embedded:
        with temporary_folder() as folder:
            file = folder / "embedded.bin"
            file.write_bytes(call.cache)
            return inspect_context(file, limits), ""
    name = os.fsdecode(call.cache)
    file = path.parent / name
    # A hostile model could otherwise have any file of this machine read and described.
    if not file.resolve().is_relative_to(path.parent.resolve()):
        return None, f"{name} lies outside of the model's folder, and was not looked at"
    if not file.is_file():
        return None, f"{name} is not beside the model: it cannot be loaded"
    return inspect_context(file, limits), ""
