"""A copy of a model with If, Loop or Scan that ONNX Runtime can save compiled.

    c ──────────────┐ captured               c
    x ──► Loop( Op(·, c) ) ──► y      x ──► Loop( c' ; Op(·, c') ) ──► y

ONNX Runtime 1.31 fails to write the EPContext model of some models with bodies: it leaves out constants of
the main graph that only a body reads, and writes a constant that it folded inside a body twice. Neither
happens when each body holds its constants itself and nothing is folded. What the model computes stays.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hexport.model.file import bodies
from hexport.model.onnx_proto import message_class
from hexport.model.staging import StagedModel

NO_FOLDING = {"optimization.disable_specified_optimizers": "ConstantFolding"}
"""The session option that goes with it."""


def with_own_constants(staged: StagedModel) -> StagedModel:
    """The same model, in a file beside it, with constants copied into the bodies that read them."""
    proto = message_class("ModelProto")()
    proto.ParseFromString(staged.model.read_bytes())
    constants = {bytes(tensor.name): tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == b"Constant":
            constants |= {bytes(node.output[0]): a.t for a in node.attribute if a.HasField("t")}
    for body in _bodies_of(proto.graph):
        _give_constants(body, constants)
    copy: Path = staged.model.with_name("own_constants.onnx")
    copy.write_bytes(proto.SerializeToString())
    return replace(staged, model=copy)


def _bodies_of(graph: Any) -> list[Any]:
    inner = [body for node in graph.node for attribute in node.attribute for body in bodies(attribute)]
    return [*inner, *(deeper for body in inner for deeper in _bodies_of(body))]


def _give_constants(body: Any, constants: dict[bytes, Any]) -> None:
    own = {bytes(t.name) for t in body.initializer} | {bytes(v.name) for v in body.input}
    own |= {bytes(name) for node in body.node for name in node.output}
    given: dict[bytes, bytes] = {}
    for node in body.node:
        for position, name in enumerate(node.input):
            if name not in constants or name in own:
                continue
            if name not in given:
                given[name] = _new_name(bytes(name), constants)
                tensor = body.initializer.add()
                tensor.CopyFrom(constants[name])
                tensor.name = given[name]
            node.input[position] = given[name]


def _new_name(name: bytes, constants: dict[bytes, Any]) -> bytes:
    """A name that no constant has; it is taken from now on."""
    number = 0
    while (new := b"%s/body%d" % (name, number)) in constants:
        number += 1
    constants[new] = constants[name]
    return new
