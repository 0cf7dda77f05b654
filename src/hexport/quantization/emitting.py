"""The plan as a model: QuantizeLinear and DequantizeLinear around every node that computes in integers.

float node ──► y ──► float node                     nothing is put between
float node ──► y ──► Q ──► DQ ──► integer node      at the border, in the reader's type
integer node ──► y ──► Q ──► DQ ──┬─► readers of the same type, and float ones
                                  └─► Q' ──► DQ' ──► readers of another type

onnxruntime's own quantiser is not used for this: it decides types by operator and not by node, stops at
constants and metadata that real models have, and cannot leave a node in float inside a quantised graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from hexport.quantization.absorbing import absorb
from hexport.quantization.activations import Activations, encode_constant
from hexport.quantization.encoding import Encoding, Floats, QType
from hexport.quantization.initializers import add_initializer
from hexport.quantization.plan import Plan
from hexport.quantization.roles import Role, role_of
from hexport.quantization.weights import LayerIntegers, bias_integers
from hexport.rewrite.values import constant

_MICROSOFT = "com.microsoft"
_FIRST_OPSET_OF_ALL_TYPES = 21
_GAIN = QType.U8


def emit(
    model: ir.Model, plan: Plan, activations: Activations, weights: Mapping[str, LayerIntegers]
) -> ir.Model:
    """A quantised copy of ``model``."""
    copy = model.clone()
    absorb(copy, plan)
    _Emitter(copy, plan, activations, weights).run()
    passes.RemoveUnusedNodesPass()(copy)
    return copy


class _Emitter:
    def __init__(
        self,
        model: ir.Model,
        plan: Plan,
        activations: Activations,
        weights: Mapping[str, LayerIntegers],
    ) -> None:
        self.model, self.graph = model, model.graph
        self.plan, self.activations, self.weights = plan, activations, weights
        self.origin: dict[ir.Value, tuple[str, QType]] = {}
        """What a DQ gives -> the tensor it stands for, and its type."""
        self.readers: dict[tuple[str, QType], ir.Value] = {}
        """(tensor, type) -> what a reader in that type takes instead."""
        self.stored: dict[tuple[str, QType], ir.Value] = {}
        """Constant operands in a type; several nodes may share one."""

    def run(self) -> None:
        for node in list(self.graph):
            self._read(node)
            if (type_ := self.plan.of(node).activation) is not None:
                for value in node.outputs:
                    if value.dtype in (ir.DataType.FLOAT, None) and self.activations.knows(str(value.name)):
                        self._write(node, value, type_)

    def _read(self, node: ir.Node) -> None:
        type_ = self.plan.of(node).activation
        if type_ is None:
            return
        # Asked before any input is replaced: a role depends on which inputs are constants.
        roles = [role_of(node, index) for index in range(len(node.inputs))]
        for index, role in enumerate(roles):
            value = node.inputs[index]
            if value is None or role is Role.PARAMETER:
                continue
            if role is Role.WEIGHT:
                node.replace_input_with(index, self._weight(node))
            elif role is Role.BIAS:
                self._bias(node, index, value)
            else:
                wanted = _GAIN if role is Role.GAIN else _right_type(type_) if role is Role.RIGHT else type_
                node.replace_input_with(index, self._in_type(node, value, wanted))

    def _in_type(self, node: ir.Node, value: ir.Value, type_: QType) -> ir.Value:
        if (array := constant(value)) is not None:
            return self._constant(str(value.name), array, type_)
        name, present = self.origin.get(value, (str(value.name), None))
        if present is type_ or not self.activations.knows(name):
            return value
        if (name, type_) not in self.readers:
            encoding = self.activations.encoding(name, type_)
            pair = self._pair(value, encoding, f"{name}_{type_.name.lower()}")
            self.graph.insert_before(node, pair)
            self.readers[name, type_] = pair[1].outputs[0]
        return self.readers[name, type_]

    def _constant(self, name: str, array: Floats, type_: QType) -> ir.Value:
        if (name, type_) not in self.stored:
            encoding = encode_constant(array, type_)
            integers = self._initializer(f"{name}_{type_.name.lower()}", _tensor(encoding, array))
            dequantize = self._node("DequantizeLinear", integers, encoding, f"{name}_{type_.name.lower()}")
            # At the front, so that every reader comes after it.
            first = self.graph[0]
            self.graph.insert_before(first, dequantize)
            self.stored[name, type_] = dequantize.outputs[0]
        return self.stored[name, type_]

    def _weight(self, node: ir.Node) -> ir.Value:
        layer = self.weights[str(node.name)]
        tensor = ir.tensor(layer.integers.astype(_numpy(layer.encoding.type)), layer.encoding.type.dtype)
        name = f"{node.name}_weight"
        dequantize = self._node("DequantizeLinear", self._initializer(name, tensor), layer.encoding, name)
        self.graph.insert_before(node, dequantize)
        return dequantize.outputs[0]

    def _bias(self, node: ir.Node, index: int, value: ir.Value) -> None:
        """An int32 at the scale of the products, or float where the products have no one scale."""
        data, factor = node.inputs[0], node.inputs[1]
        if data is None or factor is None:
            return
        layer = self.weights.get(str(node.name))
        bias = layer.bias if layer is not None else constant(value)
        if bias is None or (layer is not None and layer.encoding.block):
            return
        weight = layer.encoding if layer is not None else self._encoding_of(factor)
        if weight is None:
            return
        integers, encoding = bias_integers(bias.reshape(-1), weight, self._scale_of(data))
        name = f"{node.name}_bias"
        stored = self._initializer(name, ir.tensor(integers.astype(np.int32)))
        dequantize = self._node("DequantizeLinear", stored, encoding, name)
        self.graph.insert_before(node, dequantize)
        node.replace_input_with(index, dequantize.outputs[0])

    def _write(self, node: ir.Node, value: ir.Value, type_: QType) -> None:
        name = str(value.name)
        pair = self._pair(value, self.activations.encoding(name, type_), name)
        self.graph.insert_after(node, pair)
        quantize, dequantize = pair
        result = dequantize.outputs[0]
        output = value.is_graph_output()
        for user, index in list(value.uses()):
            if user is not quantize:
                user.replace_input_with(index, result)
        if output:
            value.name = f"{name}_float"
            result.name = name
            self.graph.outputs[list(self.graph.outputs).index(value)] = result
        self.origin[result] = (name, type_)
        self.readers[name, type_] = result

    def _pair(self, value: ir.Value, encoding: Encoding, name: str) -> tuple[ir.Node, ir.Node]:
        quantize = self._node("QuantizeLinear", value, encoding, f"{name}_q")
        quantize.outputs[0].dtype = encoding.type.dtype
        dequantize = self._node("DequantizeLinear", quantize.outputs[0], encoding, f"{name}_dq")
        for made in (quantize.outputs[0], dequantize.outputs[0]):
            made.shape = value.shape
        return quantize, dequantize

    def _node(self, op: str, value: ir.Value, encoding: Encoding, name: str) -> ir.Node:
        scale = self._initializer(f"{name}_scale", ir.tensor(encoding.scale.astype(np.float32)))
        zeros = np.full(encoding.scale.shape, encoding.zero_point, _numpy(encoding.type))
        zero_point = self._initializer(f"{name}_zero_point", ir.tensor(zeros, encoding.type.dtype))
        attributes: dict[str, int] = {}
        if encoding.axis is not None:
            attributes["axis"] = encoding.axis
        if encoding.block:
            attributes["block_size"] = encoding.block
        node = ir.node(
            op, [value, scale, zero_point], attributes, domain=self._domain(encoding), name=f"{name}_{op}"
        )
        node.outputs[0].name = f"{name}_{'integers' if op == 'QuantizeLinear' else 'reals'}"
        if op == "DequantizeLinear":
            node.outputs[0].dtype = ir.DataType.FLOAT
        return node

    def _domain(self, encoding: Encoding) -> str:
        """Before opset 21 ONNX's own operators have 8 bits only; onnxruntime's have all."""
        old = self.graph.opset_imports.get("", 0) < _FIRST_OPSET_OF_ALL_TYPES
        if old and encoding.type not in (QType.U8, QType.S8, QType.S32):
            self.graph.opset_imports[_MICROSOFT] = 1
            return _MICROSOFT
        return ""

    def _initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        return add_initializer(self.graph, name, tensor)

    def _scale_of(self, value: ir.Value) -> float:
        encoding = self._encoding_of(value)
        assert encoding is not None, value.name
        return float(encoding.scale)

    def _encoding_of(self, value: ir.Value) -> Encoding | None:
        """How the DQ that makes ``value`` reads it."""
        node = value.producer()
        if node is None or node.op_type != "DequantizeLinear":
            return None
        integers, scale = node.inputs[0], constant(node.inputs[1])
        assert integers is not None
        assert scale is not None
        type_ = next(t for t in QType if t.dtype == integers.dtype)
        return Encoding(type_, scale.astype(np.float32))


def _right_type(type_: QType) -> QType:
    """The second factor of a product: 16 bits would silently be narrowed, and unevenly."""
    return QType.S8 if type_ is QType.U16 else type_


def _tensor(encoding: Encoding, array: Floats) -> ir.TensorProtocol:
    return ir.tensor(encoding.integers(array).astype(_numpy(encoding.type)), encoding.type.dtype)


def _numpy(type_: QType) -> np.dtype:
    return type_.dtype.numpy()
