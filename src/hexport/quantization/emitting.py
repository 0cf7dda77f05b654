"""The plan as a model: QuantizeLinear and DequantizeLinear around every node that computes in integers.

float node ──► y ──► float node                     nothing is put between
float node ──► y ──► Q ──► DQ ──► integer node      at the border, in the reader's type
integer node ──► y ──► Q ──► DQ ──┬─► readers of the same type, and float ones
                                  └─► Q' ──► DQ' ──► readers of another type, and those kept apart

onnxruntime's own quantiser is not used for this: it decides types by operator and not by node, stops at
constants and metadata that real models have, and cannot leave a node in float inside a quantised graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from hexport import facts
from hexport.quantization.absorbing import absorb
from hexport.quantization.activations import Activations, encode_constant
from hexport.quantization.coarse_sums import coarse_sum
from hexport.quantization.encoding import Encoding, Floats, QType
from hexport.quantization.float_sigmoids import write_out_float_sigmoids
from hexport.quantization.initializers import add_initializer
from hexport.quantization.misfused import apart, is_misfused
from hexport.quantization.plan import Plan
from hexport.quantization.roles import Role, kind_of, role_of
from hexport.quantization.split_inputs import feed_split_inputs
from hexport.quantization.weights import LayerIntegers, bias_integers
from hexport.rewrite.naming import names_in
from hexport.rewrite.unused import remove_unused, remove_unused_constants
from hexport.rewrite.values import constant

_MICROSOFT = "com.microsoft"
_FIRST_OPSET_OF_ALL_TYPES = 21


def emit(
    model: ir.Model, plan: Plan, activations: Activations, weights: Mapping[str, LayerIntegers], arch: int
) -> ir.Model:
    """A quantised copy of ``model`` for generation ``arch``."""
    copy = model.clone()
    remove_unused(copy.graph)
    absorb(copy, plan, activations)
    write_out_float_sigmoids(copy, plan, activations.histograms)
    _Emitter(copy, plan, activations, weights, arch).run()
    feed_split_inputs(copy)
    remove_unused_constants(copy.graph)
    return copy


class _Emitter:
    def __init__(
        self,
        model: ir.Model,
        plan: Plan,
        activations: Activations,
        weights: Mapping[str, LayerIntegers],
        arch: int,
    ) -> None:
        self.model, self.graph, self.arch = model, model.graph, arch
        self.plan, self.activations, self.weights = plan, activations, weights
        self.origin: dict[ir.Value, tuple[str, QType]] = {}
        """What a DQ gives -> the tensor it stands for, and its type."""
        self.readers: dict[tuple[str, QType], ir.Value] = {}
        """(tensor, type) -> what a reader in that type takes instead."""
        self.parameters: dict[object, tuple[ir.Value, ir.Value]] = {}
        """Scales and zero points that are stored already."""
        self.fenced: dict[ir.Value | None, ir.Value] = {}
        """What a DQ gives -> the same, out of reach of the provider's own fusions."""
        self.shared: dict[int, ir.Value] = {}
        """Weights that are stored already, by the array's identity."""
        self.stored: dict[tuple[str, QType], ir.Value] = {}
        """Constant operands in a type; several nodes may share one."""
        self.taken = set(names_in(model))
        """A tensor of the model may have any name, also one that would be chosen here."""

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
            self._fence(node)
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
                wanted = reading_type(node, role, type_, self.arch)
                # Asked of what is read now: the other readers are still where this node will no longer be.
                misfused = is_misfused(node, value, self.plan)
                read = self._in_type(node, value, wanted)
                node.replace_input_with(index, self._apart(node, read) if misfused else read)

    def _fence(self, node: ir.Node) -> None:
        """Keep an operator that could be in integers in fp16: DQ ──► Cast(fp16) ──► Cast(fp32) ──► node.

        Without it the provider takes DQ ──► node ──► Q for a quantised one, and rounds its weights itself.
        """
        known = kind_of(node)
        if known is None or known.kind == "moving":
            return
        for index, value in enumerate(node.inputs):
            if value not in self.origin:
                continue
            if value not in self.fenced:
                there = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16})
                back = ir.node("Cast", [there.outputs[0]], {"to": ir.DataType.FLOAT})
                for cast, label in ((there, "half"), (back, "float")):
                    cast.name = cast.outputs[0].name = self._fresh(f"{value.name}_{label}")
                    cast.outputs[0].shape = value.shape
                there.outputs[0].dtype, back.outputs[0].dtype = ir.DataType.FLOAT16, ir.DataType.FLOAT
                self.graph.insert_before(node, [there, back])
                self.fenced[value] = back.outputs[0]
            node.replace_input_with(index, self.fenced[value])

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

    def _apart(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """``value`` once more, in an encoding that only ``node`` reads."""
        encoding = self._encoding_of(value)
        if encoding is None:
            return value
        pair = self._pair(value, apart(encoding), f"{node.name}_apart")
        self.graph.insert_before(node, pair)
        return pair[1].outputs[0]

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
        name = f"{node.name}_weight"
        if id(layer.integers) not in self.shared:
            tensor = ir.tensor(layer.integers.astype(_numpy(layer.encoding.type)), layer.encoding.type.dtype)
            self.shared[id(layer.integers)] = self._initializer(name, tensor)
        dequantize = self._node("DequantizeLinear", self.shared[id(layer.integers)], layer.encoding, name)
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
        read = self._encoding_of(data)
        assert read is not None, data.name
        integers, encoding = bias_integers(bias.reshape(-1), weight, float(read.scale))
        if layer is not None:
            cut = coarse_sum(node, read.type, read.zero_point, layer.encoding.type, layer.integers)
            integers = cut.made_up(integers)
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
            value.name = self._fresh(f"{name}_float")
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
        scale, zero_point = self._parameters(encoding)
        attributes: dict[str, int] = {}
        if encoding.axis is not None:
            attributes["axis"] = encoding.axis
        if encoding.block:
            attributes["block_size"] = encoding.block
        node = ir.node(
            op, [value, scale, zero_point], attributes, domain=self._domain(encoding), name=f"{name}_{op}"
        )
        node.outputs[0].name = self._fresh(f"{name}_{'integers' if op == 'QuantizeLinear' else 'reals'}")
        if op == "DequantizeLinear":
            node.outputs[0].dtype = ir.DataType.FLOAT
        return node

    def _parameters(self, encoding: Encoding) -> tuple[ir.Value, ir.Value]:
        """Scale and zero point: Q and DQ of one tensor, and of those that move it, have them in common."""
        scales = encoding.scale.astype(np.float32)
        key = (encoding.type, encoding.zero_point, scales.shape, scales.tobytes())
        if key not in self.parameters:
            zeros = np.full(scales.shape, encoding.zero_point, _numpy(encoding.type))
            number = len(self.parameters)
            self.parameters[key] = (
                self._initializer(f"scale_{number}", ir.tensor(scales)),
                self._initializer(f"zero_point_{number}", ir.tensor(zeros, encoding.type.dtype)),
            )
        return self.parameters[key]

    def _domain(self, encoding: Encoding) -> str:
        """Before opset 21 ONNX's own operators have 8 bits only; onnxruntime's have all."""
        old = self.graph.opset_imports.get("", 0) < _FIRST_OPSET_OF_ALL_TYPES
        if old and encoding.type not in (QType.U8, QType.S8, QType.S32):
            self.graph.opset_imports[_MICROSOFT] = 1
            return _MICROSOFT
        return ""

    def _initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        return add_initializer(self.graph, self._fresh(name), tensor)

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _encoding_of(self, value: ir.Value) -> Encoding | None:
        """How the DQ that makes ``value`` reads it."""
        node = value.producer()
        if node is None or node.op_type != "DequantizeLinear":
            return None
        integers, scale, zero = node.inputs[0], constant(node.inputs[1]), constant(node.inputs[2])
        assert integers is not None
        assert scale is not None
        assert zero is not None
        type_ = QType.of(integers.dtype)
        assert type_ is not None
        # Only weights have several, and theirs are 0.
        return Encoding(type_, scale.astype(np.float32), int(zero.reshape(-1)[0]))


def reading_type(node: ir.Node, role: Role, type_: QType, arch: int) -> QType:
    """The type in which a node that computes in ``type_`` reads an input of this role."""
    known = facts.integer_ops()[node.op_type]
    name = type_.name.lower()
    if role is Role.GAIN:
        return QType[known.gain_type(name, arch).upper()]
    # A second factor of 16 bits would silently be narrowed, and unevenly.
    return QType[known.right.get(name, name).upper()] if role is Role.RIGHT else type_


def _tensor(encoding: Encoding, array: Floats) -> ir.TensorProtocol:
    return ir.tensor(encoding.integers(array).astype(_numpy(encoding.type)), encoding.type.dtype)


def _numpy(type_: QType) -> np.dtype:
    return type_.dtype.numpy()
