"""x · Sigmoid(x) in 16 bits, which the HTP makes one operator of, and gets wrong at some heights.

x ──┬──────────────► Mul          x ──┬───────────────────────────► Mul
    └─► Sigmoid ──────┘               └─► Q' ──► DQ' ──► Sigmoid ────┘     no longer one operator
"""

from __future__ import annotations

import onnx_ir as ir

from hexport import facts
from hexport.quantization.encoding import Encoding, QType
from hexport.quantization.plan import Plan
from hexport.rewrite.values import fixed_shape

_APART = 1.02
"""A step so much coarser: the rounding is real and stays, and is far below what 16 bits lose anyway."""
_HEIGHT, _IMAGE_RANK = 2, 4


def is_misfused(node: ir.Node, value: ir.Value, plan: Plan) -> bool:
    """Whether ``node`` is the Sigmoid of ``value``, and a Mul of both would be wrong."""
    if node.op_type != "Sigmoid" or plan.of(node).activation is not QType.U16:
        return False
    shape = fixed_shape(value)
    heights = facts.integer_rules()["apart-from-its-sigmoid"].sizes
    if shape is None or len(shape) != _IMAGE_RANK or shape[_HEIGHT] not in heights:
        return False
    return any(
        user.op_type == "Mul" and plan.of(user).activation is QType.U16 and node.outputs[0] in user.inputs
        for user in value.consumers()
    )


def apart(encoding: Encoding) -> Encoding:
    """Nearly the same, but another: the same would be taken away again."""
    return Encoding(encoding.type, encoding.scale * encoding.scale.dtype.type(_APART), encoding.zero_point)
