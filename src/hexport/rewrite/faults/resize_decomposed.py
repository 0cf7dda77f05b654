"""Resize in a form that the compiler gets wrong becomes Gather (nearest) or MatMul (linear, cubic) per axis.

x ──► Resize(nearest, half_pixel, ceil) ──► y     x ──► Gather(rows) ──► Gather(columns) ──► y
x ──► Resize(linear, scales 0.6) ──► y            x ──► MatMul(Wh, ·) ──► MatMul(·, Ww) ──► y
x ──► Resize(nearest, half_pixel, ×2) ──► y       x ──► Resize(nearest, asymmetric, floor, ×2) ──► y

The compiler looks at the two sizes only and not at the scale, rounds most nearest modes its own way, and
is wrong in 3-D. What it does get right is left alone: nearest by asymmetric floor, and linear and cubic
on up to two axes whose scale is the quotient of the sizes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext, MatchResult

from hexport.rewrite.faults.resampled import resampled
from hexport.rewrite.faults.resampling import COORDINATES, Resampling
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.values import constant, fixed_shape, is_float


class ResizeDecomposed(Rule):
    purpose: ClassVar[Purpose] = Purpose.FAULT
    cures: ClassVar[frozenset[str]] = frozenset({"Resize"})

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Resize(x, _allow_other_inputs=True, _allow_other_attributes=True, _outputs=["y"])

    def check(self, context: MatchContext, x: ir.Value, y: ir.Value) -> MatchResult:  # noqa: ARG002
        result = MatchResult()
        node = context.root
        along = resamplings(node)
        if isinstance(along, str):
            return result.fail(along, node)
        if along[0].mode != "nearest" and not is_float(x):
            return result.fail("only floats are interpolated", x)
        if computed_right(along):
            return result.fail("the compiler computes this form right", node)
        self._along = along
        return result

    def rewrite(self, op: Any, x: ir.Value, y: ir.Value) -> Any:  # noqa: ARG002
        if all(step.out == step.size for step in self._along.values()):
            return op.Identity(x)  # whatever the scale says: ONNX Runtime copies when no size changes
        if _takes_floor(self._along):
            return _by_floor(op, x, self._along)
        moved = {axis: step for axis, step in self._along.items() if step.out != step.size or step.scale != 1}
        return resampled(op, x, moved)


def _takes_floor(along: dict[int, Resampling]) -> bool:
    """Whether every axis takes the elements that asymmetric floor would: the NPU has an operator for it."""
    return all(
        step.mode == "nearest" and np.array_equal(step.indices(), np.arange(step.out) * step.size // step.out)
        for step in along.values()
    )


def _by_floor(op: Any, x: ir.Value, along: dict[int, Resampling]) -> Any:
    none = op.Constant(value=ir.tensor(np.zeros(0, np.float32)))
    sizes = op.Constant(value=ir.tensor(np.array([step.out for step in along.values()], np.int64)))
    return op.Resize(
        x,
        none,
        none,
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def computed_right(along: dict[int, Resampling]) -> bool:
    """Whether the compiler gets this resampling right (measured on every form with constant sizes)."""
    moved = [step for step in along.values() if step.out != step.size or step.scale != 1]
    if not all(step.fills for step in moved):
        return False
    if along[0].mode == "nearest":
        return along[0].coordinates == "asymmetric" and along[0].nearest == "floor"
    one_place = any(step.out == 1 for step in moved) and along[0].coordinates == "pytorch_half_pixel"
    return len(moved) <= 2 and along[0].coordinates != "half_pixel_symmetric" and not one_place


def resamplings(node: ir.Node) -> dict[int, Resampling] | str:
    """What a Resize does on every axis, or why it cannot be told."""
    shape, out = fixed_shape(node.inputs[0]), fixed_shape(node.outputs[0])
    if shape is None or out is None:
        return "the shapes are not fixed"
    coordinates = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if coordinates not in COORDINATES:
        return f"the coordinates are {coordinates}"
    if node.attributes.get_int("antialias", 0):
        return "it is antialiased, which the backend leaves to the CPU"
    scales = _scales(node, shape, out)
    if isinstance(scales, str):
        return scales
    return {
        axis: Resampling(
            shape[axis],
            out[axis],
            scales[axis],
            node.attributes.get_string("mode", "nearest"),
            coordinates,
            node.attributes.get_string("nearest_mode", "round_prefer_floor"),
            node.attributes.get_float("cubic_coeff_a", -0.75),
            bool(node.attributes.get_int("exclude_outside", 0)),
        )
        for axis in range(len(shape))
    }


def _scales(node: ir.Node, shape: tuple[int, ...], out: tuple[int, ...]) -> list[float] | str:
    given = [*node.inputs[2:4], None, None]
    axes = [axis % len(shape) for axis in node.attributes.get_ints("axes", range(len(shape)))]
    scales = [1.0] * len(shape)
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if given[1] is not None and policy == "stretch":
        for axis in axes:
            scales[axis] = out[axis] / shape[axis]
        return scales
    numbers = constant(given[1]) if given[1] is not None else constant(given[0])
    if numbers is None:
        return "the scale is not constant"
    if given[1] is not None:
        quotients = [float(size) / shape[axis] for size, axis in zip(numbers, axes, strict=True)]
        common = min(quotients) if policy == "not_larger" else max(quotients)
        numbers = np.full(len(axes), common)
    for axis, scale in zip(axes, numbers, strict=True):
        scales[axis] = float(scale)
    return scales
