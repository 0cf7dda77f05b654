"""An ONNX model: signature, operators, weights, precision, and what hexport did to it before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from hexport.inspection.section import Section, TensorInfo, amount, section, signature
from hexport.model import Graph, TensorType, read
from hexport.model.file import is_external, nodes, stored_tensors
from hexport.model.labels import PREPARED, REDUCED, WRAPPED
from hexport.model.onnx_proto import message_class
from hexport.model.scheme import scheme_of

_LABELS = {"prepared": PREPARED, "wrapped": WRAPPED, "reduced": REDUCED}
_PIN = b"hexport.pin"
_METADATA_FIELD = 9
"""NodeProto.metadata_props, which ``onnx_proto`` has no need to declare."""
_BITS = {"bool": 8, "string": 0, "undefined": 0, "bfloat16": 16, "float8": 8, "float4": 4, "complex64": 64}


@dataclass(frozen=True)
class Pin:
    """A node that hexport keeps on the CPU on purpose."""

    node: str
    reason: str


@dataclass(frozen=True)
class OnnxModel:
    """What an ONNX file says of itself."""

    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    defaults: tuple[str, ...]
    """Inputs with a value of their own."""
    nodes: int
    operators: dict[str, int]
    weight_bytes: int
    weights: dict[str, int]
    """Element type -> bytes of constants."""
    external_files: tuple[str, ...]
    scheme: str
    """``float`` for a model without Q/DQ pairs, else ``8a8w``, ``16a8w``, …"""
    hexport: dict[str, str]
    """What hexport did to it: ``prepared`` and the like -> by which version, or what it noted."""
    pins: tuple[Pin, ...]
    metadata: dict[str, str]

    def sections(self) -> Iterator[Section]:
        """For people."""
        told = [
            ("opset", ", ".join(f"{domain} {self.opsets[domain]}" for domain in self._used_domains)),
            ("IR version", self.ir_version),
            ("producer", self.producer or "not said"),
            ("nodes", self.nodes),
            ("weights", ", ".join(f"{amount(size)} {kind}" for kind, size in self.weights.items()) or "none"),
            ("precision", self.scheme),
            ("hexport", ", ".join(f"{what} {said}" for what, said in self.hexport.items()) or "untouched"),
        ]
        if self.external_files:
            told.append(("external data", ", ".join(self.external_files)))
        yield section("", told)
        yield signature("Signature", self.inputs, self.outputs)
        yield section("Operators", self.operators.items(), "operator", "count")
        if self.pins:
            rows = [(pin.node, pin.reason) for pin in self.pins]
            yield section("Kept on the CPU on purpose", rows, "node", "why")

    @property
    def _used_domains(self) -> list[str]:
        """ONNX Runtime imports every domain it knows into what it writes."""
        used = {name.partition("::")[0] for name in self.operators if "::" in name} | {"ai.onnx"}
        return [domain for domain in self.opsets if domain in used]


def inspect_onnx(path: Path) -> OnnxModel:
    """Read the model."""
    model = read(path)
    graph, proto = model.graph, model.proto
    metadata = {_text(entry.key): _text(entry.value) for entry in proto.metadata_props}
    weights = Counter[str]()
    for constant in _constants(graph):
        weights[constant.dtype] += _size(constant)
    counted = Counter(_operator(node.op, node.domain) for node in graph.walk())
    scheme = scheme_of(graph, dict(_quantised(graph)))
    return OnnxModel(
        producer=model.producer,
        ir_version=int(proto.ir_version),
        opsets=model.opsets,
        inputs=_tensors(graph.inputs),
        outputs=_tensors(graph.outputs),
        defaults=model.defaults,
        nodes=sum(counted.values()),
        operators=dict(sorted(counted.items(), key=lambda item: (-item[1], item[0]))),
        weight_bytes=sum(weights.values()),
        weights=dict(weights.most_common()),
        external_files=_external_files(proto),
        scheme="float" if scheme == "fp16" else scheme,
        hexport={what: metadata[key] for what, key in _LABELS.items() if key in metadata},
        pins=tuple(_pins(proto)),
        metadata=metadata,
    )


def _operator(op: str, domain: str) -> str:
    return op if domain in ("", "ai.onnx") else f"{domain}::{op}"


def _tensors(values: Any) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(name, value.dtype, value.shape) for name, value in values.items())


def _constants(graph: Graph) -> Iterator[TensorType]:
    yield from graph.constants.values()
    for node in graph.nodes:
        for body in node.bodies:
            yield from _constants(body)


def _size(tensor: TensorType) -> int:
    if tensor.shape is None:
        return 0
    digits = "".join(filter(str.isdigit, tensor.dtype.split("_")[0]))
    bits = _BITS.get(tensor.dtype, int(digits) if digits else 0)
    return (prod(dim for dim in tensor.shape if isinstance(dim, int)) * bits + 7) // 8


def _quantised(graph: Graph) -> Iterator[tuple[str, TensorType]]:
    """The types that zero points give to what QuantizeLinear makes; without one it is uint8."""
    for node in graph.walk():
        if node.op == "QuantizeLinear" and node.outputs:
            zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
            yield node.outputs[0], TensorType(zero.dtype if zero else "uint8", None)


def _external_files(proto: Any) -> tuple[str, ...]:
    names = {
        _text(entry.value)
        for tensor in stored_tensors(proto)
        if is_external(tensor)
        for entry in tensor.external_data
        if entry.key == b"location"
    }
    return tuple(sorted(names))


def _pins(proto: Any) -> Iterator[Pin]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    entry = message_class("StringStringEntryProto")()
    for node in nodes(proto.graph):
        if node.op_type != b"Loop":
            continue
        unknown: Any = UnknownFieldSet(node)  # its type stub forgets that it is a list
        for field in unknown:
            if field.field_number == _METADATA_FIELD:
                entry.ParseFromString(field.data)
                if entry.key == _PIN:
                    yield Pin(_text(node.name), _text(entry.value))


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "replace")
