"""The forms in which every integer operator is measured: typical shapes, ranks 2 to 5, odd attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import NodeProto
from onnx.helper import make_node

from operator_cases import IMAGE, SERIES, TABLE, Array, Case, case
from operator_cases import numbers as n

SAME: dict[str, Any] = {"pads": [1, 1, 1, 1]}
TWO_STEPS: dict[str, Any] = {"strides": [2, 2]}


def axes(*values: int) -> Array:
    return np.array(values, np.int64)


def number(value: float) -> Array:
    return np.array(value, np.float32)


def chain(form: str, op: str, nodes: Iterable[NodeProto], **inputs: Array) -> Case:
    """``op`` among other nodes; the last of them makes ``y``."""
    return Case(f"{op} {form}".strip(), op, tuple(nodes), inputs)


def convolutions() -> list[Case]:
    image, deep = n((24, 16, 3, 3), "w"), (1, 4, 6, 8, 8)
    bias = n((24,), "b")
    return [
        case("Conv", [IMAGE], [image, bias], "3x3", **SAME),
        case("Conv", [IMAGE], [image], "stride 2, no bias", **SAME, **TWO_STEPS),
        case("Conv", [IMAGE], [n((24, 16, 1, 1), "w"), bias], "1x1"),
        case("Conv", [IMAGE], [n((16, 1, 3, 3), "w"), n((16,), "b")], "depthwise", group=16, **SAME),
        case("Conv", [IMAGE], [n((32, 4, 3, 3), "w"), n((32,), "b")], "grouped", group=4, **SAME),
        case(
            "Conv", [IMAGE], [n((8, 16, 3, 3), "w"), n((8,), "b")], "dilated", pads=[2] * 4, dilations=[2, 2]
        ),
        case("Conv", [SERIES], [n((16, 24, 3), "w"), n((16,), "b")], "1D", pads=[1, 1]),
        case("Conv", [SERIES], [n((24, 1, 3), "w"), n((24,), "b")], "1D depthwise", pads=[1, 1], group=24),
        case("Conv", [deep], [n((8, 4, 3, 3, 3), "w"), n((8,), "b")], "3D", pads=[1] * 6),
        case("ConvTranspose", [IMAGE], [n((16, 8, 2, 2), "w"), n((8,), "b")], "2x2", **TWO_STEPS),
        case(
            "ConvTranspose", [IMAGE], [n((16, 4, 3, 3), "w"), n((8,), "b")], "grouped", group=2, **TWO_STEPS
        ),
        case(
            "ConvTranspose",
            [IMAGE],
            [n((16, 1, 3, 3), "w"), n((16,), "b")],
            "depthwise",
            group=16,
            **TWO_STEPS,
        ),
        case("ConvTranspose", [SERIES], [n((24, 8, 4), "w"), n((8,), "b")], "1D", strides=[2]),
        case("ConvTranspose", [deep], [n((4, 8, 2, 2, 2), "w"), n((8,), "b")], "3D", strides=[2, 2, 2]),
    ]


def matrices() -> list[Case]:
    weight, bias = n((64, 32), "w"), n((32,), "b")
    return [
        case("Gemm", [TABLE], [weight.T.copy(), bias], "transB", transB=1),
        case("Gemm", [TABLE], [weight, bias]),
        case("Gemm", [TABLE], [weight], "no bias"),
        case("Gemm", [(64, 4)], [weight, bias], "transA", transA=1),
        case("Gemm", [TABLE], [weight, bias.reshape(1, 32)], "bias of rank 2"),
        case("Gemm", [TABLE], [weight, bias], "alpha", alpha=0.5, beta=2.0),
        case("MatMul", [TABLE], [weight], "weights, rank 2"),
        case("MatMul", [SERIES], [n((32, 48), "w")], "weights, rank 3"),
        case("MatMul", [(1, 4, 24, 32)], [n((32, 48), "w")], "weights, rank 4"),
        case("MatMul", [(4, 24, 32)], [n((4, 32, 16), "w")], "weights in a batch"),
        case("MatMul", [SERIES], [n((16, 24), "w")], "weights on the left", order="ka"),
        case("MatMul", [(24, 32), (32, 24)], form="two, rank 2"),
        case("MatMul", [(4, 24, 32), (4, 32, 24)], form="two, rank 3"),
        case("MatMul", [(1, 4, 24, 32), (1, 4, 32, 24)], form="two, rank 4"),
    ]


def norms() -> list[Case]:
    gain, bias = n((32,), "g", 0.5, 1.5), n((32,), "b")
    layer, instance = "LayerNormalization", "InstanceNormalization"
    return [
        case(layer, [SERIES], [gain, bias]),
        case(layer, [SERIES], [gain], "no bias"),
        case(layer, [(1, 4, 6, 32)], [gain, bias], "rank 4"),
        case(layer, [TABLE], [n((64,), "g", -1.0, 1.5), n((64,), "b")], "rank 2, gain of both signs"),
        case(instance, [IMAGE], [n((16,), "g", 0.5, 1.5), n((16,), "b")]),
        case(instance, [SERIES], [n((24,), "g", 0.5, 1.5), n((24,), "b")], "rank 3"),
        case(instance, [IMAGE], [n((16,), "g", -1.0, 1.5), n((16,), "b")], "gain of both signs"),
        case("RMSNormalization", [SERIES], [gain], opset=23),
        case("LpNormalization", [SERIES], axis=-1),
    ]


def pairs() -> list[Case]:
    found = []
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
        # Away from 0, which nothing can be divided by.
        bounds = (0.5, 3.0) if op == "Div" else (None, 1.0)
        found += [
            case(op, [n(IMAGE, op), n(IMAGE, f"{op}b", *bounds)], form="two"),
            case(op, [n(SERIES, op), n((1, 1, 32), f"{op}b", *bounds)], form="two, broadcast"),
            case(op, [IMAGE], [n((16, 1, 1), op, *bounds)], "constant a channel"),
            case(op, [SERIES], [n((32,), op, *bounds)], "constant of rank 1"),
            case(op, [TABLE], [n((), op, *bounds)], "constant scalar"),
            case(op, [(1, 2, 3, 4, 8)], [n((8,), op, *bounds)], "rank 5"),
            case(op, [n(SERIES, op, *bounds)], [n(SERIES, f"{op}c")], "constant on the left", order="ka"),
        ]
    choice = n(SERIES, "choice") > 0
    return [
        *found,
        case("Where", [choice, n(SERIES, "p"), n(SERIES, "q")], form="two"),
        case("Where", [choice, n(SERIES, "p")], [number(-30)], "constant branch"),
        case("Where", [n(SERIES, "p"), n(SERIES, "q")], [choice], "constant condition", order="kab"),
    ]


def singles() -> list[Case]:
    plain = (
        "Relu LeakyRelu Elu HardSwish Gelu Sigmoid HardSigmoid Tanh Exp Abs Neg Softplus Sin Cos Floor Ceil"
    )
    above = n(IMAGE, "above", 0.1, 4.0)
    return [
        *(case(op, [IMAGE]) for op in f"{plain} Round Sign Atan".split()),
        *(case(op, [above]) for op in ("Sqrt", "Log", "Reciprocal")),
        case("Pow", [above], [number(2).reshape(1)], "square"),
        case("Pow", [above], [number(0.5).reshape(1)], "root"),
        case("Pow", [above, n(IMAGE, "exponent", 0.5, 2.0)], form="two"),
        case("Clip", [IMAGE], [number(-1), number(1)]),
        case("Clip", [IMAGE], [number(0), number(6)], "0 to 6"),
        case("PRelu", [IMAGE], [n((16, 1, 1), "slope", 0.0, 1.0)]),
        case("Softmax", [SERIES], axis=-1),
        case("Softmax", [IMAGE], form="over channels", axis=1),
        case("LogSoftmax", [SERIES], axis=-1),
        case("CumSum", [SERIES], [np.array(1)]),
        case("GridSample", [n(IMAGE), n((1, 10, 10, 2), "grid", -1.0, 1.0)]),
        case("GridSample", [n(IMAGE), n((1, 10, 10, 2), "grid", -1.0, 1.0)], form="nearest", mode="nearest"),
    ]


def pools() -> list[Case]:
    window: dict[str, Any] = {"kernel_shape": [3, 3], **TWO_STEPS}
    found = [
        case("AveragePool", [IMAGE], **window),
        case("AveragePool", [SERIES], form="1D", kernel_shape=[2], strides=[2]),
        case("GlobalAveragePool", [IMAGE]),
        case("GlobalAveragePool", [SERIES], form="1D"),
        case("GlobalMaxPool", [IMAGE]),
        case("MaxPool", [IMAGE], **window),
        case("MaxPool", [IMAGE], form="padded", **window, **SAME),
        case("MaxPool", [SERIES], form="1D", kernel_shape=[2], strides=[2]),
    ]
    for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"):
        found += [
            case(op, [SERIES], [axes(-1)], "last axis", keepdims=1),
            case(op, [IMAGE], [axes(2, 3)], "space, no keepdims", keepdims=0),
            case(op, [IMAGE], [axes(1)], "channels", keepdims=1),
        ]
    return found


def moves() -> list[Case]:
    rows = axes(2, 0, 5)
    border, none, twice = (
        axes(0, 0, 1, 1, 0, 0, 1, 1),
        np.array([], np.float32),
        np.array([1, 1, 2, 2], np.float32),
    )
    resizes: dict[str, dict[str, Any]] = {
        "nearest": {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        "nearest half pixel": {"mode": "nearest"},
        "linear": {"mode": "linear"},
        "linear aligned": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        "cubic": {"mode": "cubic"},
    }
    return [
        case("Reshape", [IMAGE], [axes(1, 16, 144)]),
        case("Transpose", [SERIES], perm=[0, 2, 1]),
        case("Transpose", [IMAGE], form="rank 4", perm=[0, 2, 3, 1]),
        case("Flatten", [IMAGE]),
        case("Squeeze", [SERIES], [axes(0)]),
        case("Unsqueeze", [SERIES], [axes(1)]),
        case("Slice", [IMAGE], [axes(2), axes(10), axes(3)]),
        case("Slice", [IMAGE], [axes(0), axes(12), axes(2), axes(2)], "stepped"),
        case("Gather", [SERIES], [rows], axis=1),
        case("Gather", [SERIES], [np.array(3)], "one index", axis=1),
        case("GatherElements", [SERIES], [np.tile(rows.reshape(1, 3, 1), (1, 1, 32))], axis=1),
        case("Expand", [(1, 1, 32)], [axes(1, 24, 32)]),
        case("Tile", [SERIES], [axes(1, 2, 1)]),
        case("DepthToSpace", [IMAGE], blocksize=2),
        case("DepthToSpace", [IMAGE], form="CRD", blocksize=2, mode="CRD"),
        case("SpaceToDepth", [IMAGE], blocksize=2),
        case("Pad", [IMAGE], [border]),
        case("Pad", [IMAGE], [border, number(-1.5)], "value"),
        *(case("Pad", [IMAGE], [border], mode, mode=mode) for mode in ("reflect", "edge")),
        case("Concat", [n(IMAGE, "one"), n(IMAGE, "two") * 3], form="unlike ranges", axis=1),
        case("Concat", [n(SERIES, "one"), n(SERIES, "two") * 0.01 + 5], form="far apart", axis=1),
        case("Concat", [SERIES], [n((1, 1, 32), "token")], "constant", axis=1),
        chain(
            "all read",
            "Split",
            [
                make_node("Split", ["a"], ["s", "t"], num_outputs=2),
                make_node("Concat", ["t", "s"], ["y"], axis=0),
            ],
            a=n((8, 8)),
        ),
        case("Identity", [SERIES]),
        *(case("Resize", [IMAGE], [none, twice], form, order="akl", **how) for form, how in resizes.items()),
    ]


def decisions() -> list[Case]:
    """Behind a Neg, because only what an integer node has made is there as integers to decide upon."""
    first, second = make_node("Neg", ["a"], ["s"]), make_node("Neg", ["b"], ["t"])
    shown = make_node("Cast", ["u"], ["y"], to=1)
    compared = [
        chain(
            "",
            op,
            [first, second, make_node(op, ["s", "t"], ["u"]), shown],
            a=n(SERIES, op),
            b=n(SERIES, "b"),
        )
        for op in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
    ]
    found = [
        chain("", op, [first, make_node(op, ["s"], ["u"], axis=-1), shown], a=n(SERIES, op))
        for op in ("ArgMax", "ArgMin")
    ]
    return [*compared, *found]


def every() -> list[Case]:
    return [*convolutions(), *matrices(), *norms(), *pairs(), *singles(), *pools(), *moves(), *decisions()]
