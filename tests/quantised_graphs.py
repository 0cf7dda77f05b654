"""What the quantiser's tests share: float models, samples, and plans made into models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

import small_models as small
from hexport import facts
from hexport.quantization.plan import SCHEMES, Plan, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.workshop import Workshop
from hexport.rewrite.applying import infer_shapes
from rule_checks import TARGET, Feeds, cpu, random_feeds

ARCH = facts.find_target(TARGET).htp_arch
PLAIN = Recipe("min-max", carry_errors=False, correct_bias=False)


def workshop(proto: onnx.ModelProto, folder: Path, count: int = 3) -> Workshop:
    """The model as the verb holds it, with random samples."""
    return workshop_with(proto, folder, [random_feeds(proto, seed) for seed in range(count)])


def workshop_with(proto: onnx.ModelProto, folder: Path, samples: Sequence[Feeds]) -> Workshop:
    model = ir.from_proto(proto)
    infer_shapes(model)
    return Workshop(lambda: model, model, samples, samples, folder, ARCH)


def quantised(shop: Workshop, plan: Plan | str, recipe: Recipe = PLAIN) -> onnx.ModelProto:
    """The model that comes of a plan, or of a scheme for every node; ONNX's checker has seen it."""
    if isinstance(plan, str):
        plan = plan_for(shop.model, SCHEMES[plan], ARCH)
    proto = ir.to_proto(shop.build(plan, recipe))
    # The checker knows nothing of onnxruntime's own operators.
    onnx.checker.check_model(proto, full_check=all(not node.domain for node in proto.graph.node))
    return proto


def sqnr(expected: onnx.ModelProto, got: onnx.ModelProto, feeds: Feeds) -> list[float]:
    """In dB, for each output, on the CPU."""
    return [_decibels(a, b) for a, b in zip(cpu(expected, feeds), cpu(got, feeds), strict=True)]


def _decibels(reference: np.ndarray, result: np.ndarray) -> float:
    exact = reference.astype(np.float64)
    noise = np.sum((result.astype(np.float64) - exact) ** 2)
    return float(10 * np.log10(np.sum(exact**2) / noise)) if noise else np.inf


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def cnn(opset: int = 21) -> onnx.ModelProto:
    """x[1,3,16,16] → Conv, Relu → depthwise Conv, Clip(0, 6) → MaxPool → average → Gemm → y[1,5]."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="depthwise", group=8, pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c2", "zero", "six"], ["r2"], name="clip"),
        helper.make_node("MaxPool", ["r2"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="gemm", transB=1),
    ]
    constants = [
        small.constant("w1", normal(8, 3, 3, 3, scale=0.3)),
        small.constant("b1", normal(8, seed=1, scale=0.3)),
        small.constant("w2", normal(8, 1, 3, 3, seed=2, scale=0.5)),
        small.constant("b2", normal(8, seed=3)),
        small.constant("zero", np.array(0, np.float32)),
        small.constant("six", np.array(6, np.float32)),
        small.constant("w3", normal(5, 8, seed=4)),
        small.constant("b3", normal(5, seed=5)),
    ]
    return small.model(
        nodes, [small.value("x", [1, 3, 16, 16])], [small.value("y", [1, 5])], constants, opset=opset
    )


def transformer(opset: int = 21) -> onnx.ModelProto:
    """One block of one head: x[1,8,32] → norm → attention → + x → norm → two MatMuls with Gelu → + → y."""
    make = helper.make_node
    nodes = [
        make("LayerNormalization", ["x", "g1", "n1"], ["h"], name="norm1"),
        make("MatMul", ["h", "wq"], ["q"], name="q"),
        make("MatMul", ["h", "wk"], ["k"], name="k"),
        make("MatMul", ["h", "wv"], ["v"], name="v"),
        make("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
        make("MatMul", ["q", "kt"], ["s"], name="scores"),
        make("Mul", ["s", "eighth"], ["t"], name="scale"),
        make("Softmax", ["t"], ["a"], name="softmax", axis=-1),
        make("MatMul", ["a", "v"], ["o"], name="mix"),
        make("Add", ["o", "x"], ["r"], name="residual1"),
        make("LayerNormalization", ["r", "g2", "n2"], ["m"], name="norm2"),
        make("MatMul", ["m", "w1"], ["u"], name="up"),
        make("Gelu", ["u"], ["e"], name="gelu"),
        make("MatMul", ["e", "w2"], ["d"], name="down"),
        make("Add", ["d", "r"], ["y"], name="residual2"),
    ]
    constants = [small.constant("eighth", np.array(0.18, np.float32))]
    for seed, (name, shape) in enumerate(
        {"wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "w1": (32, 64), "w2": (64, 32)}.items()
    ):
        constants.append(small.constant(name, normal(*shape, seed=seed, scale=shape[0] ** -0.5)))
    for seed, name in enumerate(("n1", "n2")):
        constants.append(small.constant(f"g{seed + 1}", 1 + normal(32, seed=seed, scale=0.1)))
        constants.append(small.constant(name, normal(32, seed=seed + 7, scale=0.1)))
    return small.model(
        nodes, [small.value("x", [1, 8, 32])], [small.value("y", [1, 8, 32])], constants, opset=opset
    )
