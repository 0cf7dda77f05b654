"""Which nodes the NPU cannot do alone: each runs as a model of its own on what the CPU gave it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

import onnx_ir as ir

from hexport.model.graph import Node, TensorType
from hexport.model.macs import macs
from hexport.preparation.excerpts import Excerpt, excerpt
from hexport.preparation.nearness import nearness
from hexport.preparation.tensors import Tensors
from hexport.preparation.trials import Trials
from hexport.rewrite.pinning import why_not_pinned
from hexport.rewrite.values import constant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_MOST_BYTES = 256 * 2**20
"""A node that reads and makes more than this is not run alone: the simulator would take minutes."""
_SMALL = 64
"""Constants of so few numbers are part of a node's form: axes, pads, slices."""


class Blame(Enum):
    """What is wrong with a node."""

    FAILS = "fails on it"
    WRONG = "computes it wrongly"
    ROUNDED = "cannot hold its inputs in fp16"
    """The rounding of the inputs alone loses the result: the node itself is as good as can be."""
    TOGETHER = "cannot do it together with its neighbours"


@dataclass(frozen=True)
class Suspect:
    """A node, what the NPU makes of it, and what it costs elsewhere."""

    name: str
    op: str
    blame: Blame
    what: str
    """The failure's own words, or how far off the result is."""
    macs: int | None

    @property
    def reason(self) -> str:
        """Why it is pinned, for the file: without native words, whose numbers differ from run to run."""
        return f"the NPU {self.blame.value}"

    @property
    def told(self) -> str:
        """The whole story, in one line."""
        return f"{self.op}: {self.reason}: {self.what}"


def find_suspects(
    model: ir.Model, tensors: Tensors, trials: Trials, enough_db: float, deadline: float
) -> Iterator[Suspect]:
    """Every node that fails or is less than ``enough_db`` near to the CPU; ends at the deadline.

    One node of each form goes first. What fails does so for its form, so the others of it are not run.
    """
    failing: dict[bytes, Suspect] = {}
    later: list[tuple[bytes, ir.Node]] = []
    seen: set[bytes] = set()
    nodes = [(_form(node, tensors), node) for node in model.graph if not why_not_pinned(node)]
    for first in (True, False):
        for form, node in nodes if first else later:
            if first and form in seen:
                later.append((form, node))
                continue
            seen.add(form)
            if form in failing:
                yield replace(failing[form], name=str(node.name))
                continue
            if time.monotonic() > deadline:
                return
            suspect = _alone(model, node, tensors, trials, enough_db)
            if suspect is None:
                continue
            if suspect.blame is Blame.FAILS:
                failing[form] = suspect
            yield suspect


def _alone(
    model: ir.Model, node: ir.Node, tensors: Tensors, trials: Trials, enough_db: float
) -> Suspect | None:
    part = excerpt(model, [node], tensors)
    if part is None or _bytes(part) > _MOST_BYTES:
        return None
    trial = trials.on_npu(part.model, part.feeds)
    cost = cost_of(node, tensors)
    if trial.failure:
        return Suspect(str(node.name), node.op_type, Blame.FAILS, trial.failure, cost)
    near = nearness(part.expected, trial.outputs)
    if not trial.on_npu or near >= enough_db:
        return None
    rounded = trials.on_cpu(part.model, {name: _in_fp16(array) for name, array in part.feeds.items()})
    blame = Blame.ROUNDED if nearness(part.expected, rounded.outputs) < enough_db else Blame.WRONG
    return Suspect(str(node.name), node.op_type, blame, describe(near), cost)


def describe(near: float) -> str:
    """A nearness in words."""
    return "it gives other numbers" if near == float("-inf") else f"{near:.0f} dB from the CPU's result"


def cost_of(node: ir.Node, tensors: Tensors) -> int | None:
    """The node's multiply-accumulates; None when not known."""
    types = {}
    for value in (*node.inputs, *node.outputs):
        if value is not None and (kind := _kind(value, tensors)) is not None:
            types[str(value.name)] = TensorType(*kind)
    attributes: dict[str, int | float | bytes | tuple[int, ...]] = {}
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.INT:
            attributes[attribute.name] = attribute.as_int()
        elif attribute.type is ir.AttributeType.STRING:
            attributes[attribute.name] = attribute.as_string().encode()
    inputs = tuple("" if value is None else str(value.name) for value in node.inputs)
    outputs = tuple(str(value.name) for value in node.outputs)
    return macs(Node(str(node.name), node.op_type, node.domain, inputs, outputs, attributes), types)


def _form(node: ir.Node, tensors: Tensors) -> bytes:
    """Nodes of one form differ in the numbers they are given only."""
    digest = sha256(f"{node.domain}\0{node.op_type}\0{len(node.outputs)}".encode())
    for attribute in sorted(node.attributes.values(), key=lambda attribute: attribute.name):
        digest.update(ir.to_proto(attribute).SerializeToString())
    for value in node.inputs:
        array = constant(value)
        digest.update(f"{None if value is None else _kind(value, tensors)}{array is None}\0".encode())
        if array is not None and array.size <= _SMALL:
            digest.update(array.tobytes())
    return digest.digest()


def _kind(value: ir.Value, tensors: Tensors) -> tuple[str, tuple[int, ...]] | None:
    """The element type and shape, of a constant or as the CPU made it."""
    array = constant(value)
    return tensors.kinds.get(str(value.name)) if array is None else (array.dtype.name, array.shape)


def _in_fp16(array: Array) -> Array:
    import numpy as np

    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        rounded: Array = array.astype(np.float16).astype(array.dtype)
    return rounded


def _bytes(part: Excerpt) -> int:
    arrays: Sequence[Array] = [*part.feeds.values(), *part.expected.values()]
    return sum(array.nbytes for array in arrays)
