"""One node in one form, as a model: what most rules' tests are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import small_models as small
from hexport.rewrite.rule import Rule
from rule_checks import cpu, random_feeds

F, I64, I32, BOOL, U8 = np.float32, np.int64, np.int32, np.bool_, np.uint8
_ELEMENT = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.bool_): TensorProto.BOOL,
    np.dtype(np.uint8): TensorProto.UINT8,
}
MICROSOFT = "com.microsoft"


def random(*shape: int, seed: int = 7) -> np.ndarray:
    """Weights and scales: positive, none near zero."""
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(F)


@dataclass(frozen=True)
class Typed:
    """An input that is not float."""

    shape: tuple[int, ...]
    dtype: type


@dataclass(frozen=True)
class Form:
    """A node. Its inputs are shapes (of floats), ``Typed``, constant arrays, or None for one left out."""

    rule: type[Rule]
    op: str
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    domain: str = ""
    outputs: tuple[str, ...] = ("y",)
    """Empty where left out; with a leading underscore, made and used by nobody."""

    def model(self) -> onnx.ModelProto:
        names = ["" if given is None else f"in{i}" for i, given in enumerate(self.inputs)]
        named = list(zip(names, self.inputs, strict=True))
        values = [
            small.value(name, list(given.shape), _ELEMENT[np.dtype(given.dtype)])
            if isinstance(given, Typed)
            else small.value(name, list(given))
            for name, given in named
            if isinstance(given, Typed | tuple)
        ]
        constants = [small.constant(name, given) for name, given in named if isinstance(given, np.ndarray)]
        node = helper.make_node(
            self.op, names, list(self.outputs), name="it", domain=self.domain, **self.attributes
        )
        shown = [name for name in self.outputs if name and not name.startswith("_")]
        return typed(small.model([node], values, [], constants, self.opset), shown)


def contrib(rule: type[Rule], op: str, inputs: tuple[Any, ...], opset: int = 17, **more: Any) -> Form:
    outputs = more.pop("outputs", ("y",))
    return Form(rule, op, inputs, more, opset, MICROSOFT, outputs)


def typed(proto: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """The model with these outputs, typed by what ONNX Runtime gives for them."""
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    results = cpu(proto, random_feeds(proto))
    del proto.graph.output[:]
    for name, result in zip(outputs, results, strict=True):
        proto.graph.output.append(small.value(name, list(result.shape), _ELEMENT[result.dtype]))
    return proto


def side_by_side(protos: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Independent models in one, so that the backend is asked once for all of them."""
    whole = onnx.ModelProto()
    whole.CopyFrom(onnx.compose.add_prefix(protos[0], "m0_"))
    for i, proto in enumerate(protos[1:], 1):
        part = onnx.compose.add_prefix(proto, f"m{i}_").graph
        whole.graph.node.extend(part.node)
        whole.graph.input.extend(part.input)
        whole.graph.output.extend(part.output)
        whole.graph.initializer.extend(part.initializer)
        whole.graph.value_info.extend(part.value_info)
    return whole
