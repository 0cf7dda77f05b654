"""Operators kept on the CPU where the compiler is wrong, fails or dies and no other form is right.

x ──► GridSample(nearest) ──► y          x ──► Loop(1 step: GridSample(nearest)) ──► Reshape ──► y
"""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from hexport.rewrite.faults.resize_decomposed import resamplings
from hexport.rewrite.pinning import PinRule
from hexport.rewrite.values import constant, fixed_shape


class ResizeByInput(PinRule):
    """The scale comes from an input; the compiler guesses it from the sizes."""

    op_type: ClassVar[str] = "Resize"
    cures: ClassVar[frozenset[str]] = frozenset({"Resize"})

    def fault(self, node: ir.Node) -> str:
        along = resamplings(node)
        unknown = isinstance(along, str) and along == "the scale is not constant"
        return "the scale is only known when the model runs, and the compiler guesses it" if unknown else ""


class UpsampleByInput(PinRule):
    """An Upsample whose scale comes from an input ends the session."""

    op_type: ClassVar[str] = "Upsample"
    cures: ClassVar[frozenset[str]] = frozenset({"Upsample"})

    def fault(self, node: ir.Node) -> str:
        return "" if constant(node.inputs[1]) is not None else "the compiler fails on Upsample"


class GridSampleOnCpu(PinRule):
    """Nearest takes the wrong neighbour; a volume ends the session."""

    op_type: ClassVar[str] = "GridSample"
    cures: ClassVar[frozenset[str]] = frozenset({"GridSample"})

    def fault(self, node: ir.Node) -> str:
        shape = fixed_shape(node.inputs[0])
        if shape is not None and len(shape) == 5:
            return "the compiler fails on a volume"
        nearest = node.attributes.get_string("mode", "") == "nearest"
        return "the compiler takes the wrong neighbour" if nearest else ""


class MaxPoolBytes(PinRule):
    """A pool of bytes that are not quantised ends the session."""

    op_type: ClassVar[str] = "MaxPool"
    cures: ClassVar[frozenset[str]] = frozenset({"MaxPool"})

    def fault(self, node: ir.Node) -> str:
        source = node.inputs[0]
        if source is None or source.dtype not in (ir.DataType.UINT8, ir.DataType.INT8):
            return ""
        producer = source.producer()
        quantised = producer is not None and producer.op_type == "QuantizeLinear"
        return "" if quantised else "the compiler fails on a pool of bytes"


class NonZeroOnCpu(PinRule):
    """The NPU cannot tell how many there are."""

    op_type: ClassVar[str] = "NonZero"
    cures: ClassVar[frozenset[str]] = frozenset({"NonZero"})

    def fault(self, node: ir.Node) -> str:  # noqa: ARG002
        return "the NPU fails when it runs NonZero"


class IsNaNOfInput(PinRule):
    """A NaN in an input does not survive the way to fp16; one that the model computes does."""

    op_type: ClassVar[str] = "IsNaN"
    cures: ClassVar[frozenset[str]] = frozenset({"IsNaN"})

    def fault(self, node: ir.Node) -> str:
        source = node.inputs[0]
        from_outside = source is not None and source.is_graph_input()
        return "a NaN in the model's input does not reach the NPU" if from_outside else ""


class StftByInput(PinRule):
    """STFT kills the compiler's process, unless its step, window and length are constant."""

    op_type: ClassVar[str] = "STFT"
    cures: ClassVar[frozenset[str]] = frozenset({"STFT"})

    def fault(self, node: ir.Node) -> str:
        known = all(value is None or constant(value) is not None for value in node.inputs[1:4])
        return "" if known else "the compiler dies of STFT"
