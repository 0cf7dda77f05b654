"""Advice: what each of the backend's reasons means, and what to do about it."""

from __future__ import annotations

import re

import pytest

from hexport import facts

NOT_REGISTERED = (
    "Operators of type `{0}` are not supported by QNN EP.{0} node `n0` will not be assigned to QNN EP."
)

# (operator, what onnxruntime-qnn 2.7.0 says of it, cause); most measured for SM8650, some read in its library
MEASURED = [
    ("Relu", "Cannot get shape", "dynamic-shape"),
    ("Conv", "Dynamic shape is not supported yet, for input: x", "dynamic-shape"),
    ("Expand", "QNN doesn't support dynamic shape.", "non-constant-input"),
    (
        "NonZero",
        "NonZero output shape must be static. Set shape to [rank, num_elements].",
        "data-dependent-shape",
    ),
    ("Loop", NOT_REGISTERED.format("Loop"), "control-flow"),
    ("Erf", NOT_REGISTERED.format("Erf"), "op-not-registered"),
    ("Trilu", NOT_REGISTERED.format("Trilu"), "op-not-registered"),
    ("BitwiseAnd", NOT_REGISTERED.format("BitwiseAnd"), "op-not-registered"),
    ("ConvInteger", NOT_REGISTERED.format("ConvInteger"), "op-not-registered"),
    ("IsInf", "QNN EP does not support IsInf on the HTP backend (graphFinalize fails).", "not-on-htp"),
    ("ReduceProd", "QNN EP: ReduceProd operator not supported by HTP backend.", "not-on-htp"),
    ("Equal", "Failed to map Onnx data type to Qnn data type!", "dtype-unsupported"),
    ("Add", "Failed to add node.", "validation-rejected"),
    ("Clip", "QNN doesn't support dynamic min/max.", "non-constant-input"),
    ("Slice", "QNN doesn't support dynamic slice.", "non-constant-input"),
    (
        "TopK",
        "The number of top elements to retrieve must be specified as constant input.",
        "non-constant-input",
    ),
    ("Pad", "Qnn doesn't support dynamic pad input", "non-constant-input"),
    (
        "Range",
        "Range: all inputs (start, limit, delta) must be constant initializers. Dynamic Range inputs are not "
        "supported by QNN EP.",
        "non-constant-input",
    ),
    ("BatchNormalization", "QNN BatchNorm doesn't support dynamic scale.", "non-constant-input"),
    ("Pad", "Pad mode only support constant.", "attribute-unsupported"),
    ("Gemm", "QNN FullyConnected Op only support alpha=1.0.", "attribute-unsupported"),
    ("CumSum", "QNN only supports default value 0 for reverse attribute", "attribute-unsupported"),
    ("Mod", "QNN Mod Op only support fmod == 0 for now.", "attribute-unsupported"),
    (
        "LpNormalization",
        "QNN EP only supports LpNormalization with 'p' attribute equal to 2.",
        "attribute-unsupported",
    ),
    ("BatchNormalization", "QNN BatchNorm only supports input ranks of size <= 4.", "rank-unsupported"),
    (
        "InstanceNormalization",
        "QNN InstanceNorm only supports input ranks of size 3 or 4.",
        "rank-unsupported",
    ),
    ("Softplus", "QNN EP does not support Softplus with input rank > 4.", "rank-unsupported"),
    ("MaxPool", "QNN NPU does not support PoolMax3d!", "rank-unsupported"),
    (
        "LayerNormalization",
        "QNN LayerNorm on HTP only supports normalization along the last axis.",
        "layer-norm-axis",
    ),
    ("MaxPool", "QNN Pool only supports dilations 1!", "attribute-unsupported"),
    ("Resize", "QNN EP: Resize doesn't support anti-aliasing.", "attribute-unsupported"),
    (
        "Resize",
        "QNN EP: Resize on the NPU does not support nearest_mode round_prefer_floor",
        "attribute-unsupported",
    ),
    ("LSTM", "QNN EP: dynamic sequence_length is not supported.", "recurrent-lengths"),
    ("GRU", "QNN EP doesn't support non-default activations for GRU.", "attribute-unsupported"),
    ("Einsum", "Einsum unsupported equation: i,j->ij", "attribute-unsupported"),
    ("ScatterND", "ScatterND does not support reduction max", "attribute-unsupported"),
    (
        "DequantizeLinear",
        "QNN EP does not support a standalone DQ op with per-channel quantization",
        "quantization-unsupported",
    ),
    (
        "QuantizeLinear",
        "QNN EP does not support a single Quantize/Dequantize node in a partition.",
        "lone-quantize",
    ),
    (
        "DequantizeLinear",
        "QNN EP is configured to not take DQ nodes that generate a graph output.",
        "io-quantization-offloaded",
    ),
    ("IsNaN", "QNN IsNan Op support only bool8 output tensor.", "dtype-unsupported"),
    ("NonMaxSuppression", "NonMaxSuppression: failed to create QNN node.", "validation-rejected"),
    ("Gather", "QNN does not support negative index values for Gather* ops", "indices-unsupported"),
    ("Cast", "Unsupported FP64 data type in graph IO.", "dtype-unsupported"),
    ("Tan", "Tan operator only supports float and float16 input.", "dtype-unsupported"),
    (
        "Conv",
        "Conv's INT16 weight inputs only support INT16 per-tensor quantization",
        "quantization-unsupported",
    ),
    ("Foo", "something never seen before", "unknown"),
    ("Foo", "", "unknown"),
]


@pytest.mark.parametrize(("op_type", "reason", "cause"), MEASURED)
def test_advice_for_what_the_backend_says(op_type: str, reason: str, cause: str) -> None:
    assert facts.advise(op_type, "", reason).cause == cause


def test_the_same_rejection_means_something_else_on_a_chip_without_float() -> None:
    reason = "Failed to add node."
    assert (
        facts.advise("Relu", "", reason, facts.find_target("QCM6490")).cause
        == "float-not-supported-on-target"
    )
    assert facts.advise("Relu", "", reason, facts.find_target("SM8650")).cause == "validation-rejected"


def test_custom_operators_are_told_apart_by_their_domain() -> None:
    reason = NOT_REGISTERED.format("Magic")
    assert facts.advise("Magic", "my.company", reason).cause == "custom-op"
    for domain in ("", "com.microsoft", "com.ms.internal.nhwc"):
        assert facts.advise("Magic", domain, reason).cause == "op-not-registered"


def test_the_last_advice_fits_everything() -> None:
    last = facts.advice()[-1]
    assert (last.match, last.ops, last.without_float, last.foreign_domain) == ("", (), False, False)


def test_advice_promises_only_rewrites_it_names() -> None:
    for entry in facts.advice():
        if "hexport prepare" in entry.advice:
            assert entry.rewrite, entry.advice
        assert re.fullmatch(r"[a-z-]*", entry.rewrite)


def test_operators_without_a_builder_have_more_than_the_general_advice() -> None:
    # The candidates for rewrites, as measured on 2.7.0.
    rewritable = (
        "Erf Trilu SkipLayerNormalization SkipSimplifiedLayerNormalization MultiHeadAttention "
        "FastGelu BiasGelu Acos Acosh Asinh Atanh Sinh Cosh Softsign Mish Celu Shrink Hardmax "
        "ReduceL1 ReduceLogSum ReduceSumSquare GlobalLpPool MeanVarianceNormalization Size "
        "ConstantOfShape EyeLike Dropout RNN ReverseSequence Loop Scan"
    )
    for op_type in rewritable.split():
        assert facts.advise(op_type, "", NOT_REGISTERED.format(op_type)).rewrite, op_type
