"""Small models with dynamic dims, and samples of many sizes for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import small_models as small

WIDTH = 16
TOKENS = 50


def _weights(seed: int, *shape: int) -> np.ndarray:
    scale = np.sqrt(np.prod(shape[:-1]))
    return (np.random.default_rng(seed).normal(size=shape) / scale).astype(np.float32)


def masked_shares(keys: str) -> list[onnx.NodeProto]:
    """q [batch, n, width], the keys [batch, m, width] and mask [batch, m] → share [batch, n, m]."""
    node = helper.make_node
    return [
        node("Transpose", [keys], ["kt"], name="turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"], name="scores"),
        node("Cast", ["mask"], ["open"], name="open", to=TensorProto.FLOAT),
        node("Sub", ["one", "open"], ["hidden"], name="hidden"),
        node("Mul", ["hidden", "much"], ["bias"], name="bias"),
        node("Unsqueeze", ["bias", "axis"], ["biases"], name="biases"),
        node("Add", ["scores", "biases"], ["masked"], name="masked"),
        node("Softmax", ["masked"], ["share"], name="share", axis=-1),
    ]


def masked_attention() -> onnx.ModelProto:
    """ids, mask [batch, seq] → one head of attention, in which what the mask hides counts for nothing."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"], name="embed"),
        node("MatMul", ["e", "wq"], ["q"], name="query"),
        node("MatMul", ["e", "wk"], ["k"], name="key"),
        node("MatMul", ["e", "wv"], ["v"], name="value"),
        *masked_shares("k"),
        node("MatMul", ["share", "v"], ["y"], name="mix"),
    ]
    constants = {
        "table": _weights(0, TOKENS, WIDTH) * 7, "wq": _weights(1, WIDTH, WIDTH),
        "wk": _weights(2, WIDTH, WIDTH), "wv": _weights(3, WIDTH, WIDTH),
        "one": np.float32(1), "much": np.float32(-10000), "axis": np.array([1]),
    }  # fmt: skip
    return small.model(
        nodes,
        [small.value(name, ["batch", "seq"], TensorProto.INT64) for name in ("ids", "mask")],
        [small.value("y", ["batch", "seq", WIDTH])],
        [small.constant(name, np.asarray(array)) for name, array in constants.items()],
    )


def attention_samples(folder: Path, lengths: Sequence[int]) -> Path:
    """A folder of .npz, one a sample, of these lengths."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number, length in enumerate(lengths):
        ids = rng.integers(1, TOKENS, (1, length))
        np.savez(folder / f"{number:02}.npz", ids=ids, mask=np.ones_like(ids))
    return folder


def mean_over_length() -> onnx.ModelProto:
    """x [1, n, 16] → its mean over n, with no mask: filling up makes it smaller."""
    return small.model(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
            helper.make_node("ReduceMean", ["m"], ["y"], name="mean", axes=[1], keepdims=0),
        ],
        [small.value("x", [1, "n", WIDTH])],
        [small.value("y", [1, WIDTH])],
        [small.constant("w", _weights(0, WIDTH, WIDTH))],
    )


def two_convolutions() -> onnx.ModelProto:
    """x [1, 4, 1, n]; behind a bias the second sees other numbers beyond the end than its own padding."""
    node = helper.make_node
    return small.model(
        [
            node("Conv", ["x", "w", "b"], ["c"], name="first", pads=[0, 2, 0, 2]),
            node("Relu", ["c"], ["r"], name="relu"),
            node("Conv", ["r", "w", "b"], ["y"], name="second", pads=[0, 2, 0, 2]),
        ],
        [small.value("x", [1, 4, 1, "n"])],
        [small.value("y", [1, 4, 1, "n"])],
        [small.constant("w", _weights(0, 4, 4, 1, 5)), small.constant("b", np.ones(4, np.float32))],
    )


def halved_twice() -> onnx.ModelProto:
    """x [1, 4, 1, n] → y [1, 4, 1, ⌈n/4⌉]; zeros beyond the end are what the convolutions add themselves."""
    conv = {"strides": [1, 2], "auto_pad": "SAME_UPPER"}
    return small.model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="first", **conv),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("Conv", ["r", "w"], ["y"], name="second", **conv),
        ],
        [small.value("x", [1, 4, 1, None])],
        [small.value("y", [1, 4, 1, None])],
        [small.constant("w", _weights(0, 4, 4, 1, 2))],
    )


def pointwise() -> onnx.ModelProto:
    """x [1, h, w, 16] → Relu(x·W): every place by itself, along both dims."""
    return small.model(
        [
            helper.make_node("MatMul", ["x", "weights"], ["m"], name="matmul"),
            helper.make_node("Relu", ["m"], ["y"], name="relu"),
        ],
        [small.value("x", [1, "h", "w", WIDTH])],
        [small.value("y", [1, "h", "w", WIDTH])],
        [small.constant("weights", _weights(0, WIDTH, WIDTH))],
    )


def end_to_end() -> onnx.ModelProto:
    """past [1, p, 4] and new [1, n, 4] one after the other: y has p + n rows."""
    return small.model(
        [
            helper.make_node("Concat", ["past", "new"], ["c"], name="concat", axis=1),
            helper.make_node("Relu", ["c"], ["y"], name="relu"),
        ],
        [small.value("past", [1, "p", 4]), small.value("new", [1, "n", 4])],
        [small.value("y", [1, "p+n", 4])],
    )


def mostly_weights(width: int = 768) -> onnx.ModelProto:
    """x [1, n, width] through two square matrices."""
    return small.model(
        [
            helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
            helper.make_node("Relu", ["a"], ["r"], name="relu"),
            helper.make_node("MatMul", ["r", "w1"], ["y"], name="second"),
        ],
        [small.value("x", [1, "n", width])],
        [small.value("y", [1, "n", width])],
        [small.constant(f"w{i}", _weights(i, width, width)) for i in range(2)],
    )


def float_samples(path: Path, *shape: int, count: int = 3) -> Path:
    """An .npz of samples for an input ``x``."""
    np.savez(path, x=np.random.default_rng(7).normal(size=(count, *shape)).astype(np.float32))
    return path
