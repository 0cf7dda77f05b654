"""Bounds: whatever the input, nothing is beyond them; and they are not wider than they must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexport.quantization.bounds import bounds_of
from step_models import graph

FACTOR = np.array([[[-2.0]], [[0.5]], [[3.0]], [[1.0]]], np.float32)
ENDS = {"low": np.float32(-0.5), "high": np.float32(6.0)}
# What is done to the results of a Sigmoid and of a Tanh, and the ends that it then has.
CARRIED: dict[str, tuple[list[str], tuple[float, float]]] = {
    "scaled": (["y = Mul s k"], (-2.0, 3.0)),
    "moved": (["m = Mul s k", "y = Add m k"], (-4.0, 6.0)),
    "taken off": (["y = Sub k s"], (-3.0, 3.0)),
    "turned": (["y = Neg s"], (-1.0, 0.0)),
    "cut at 0": (["m = Mul s k", "y = Relu m"], (0.0, 3.0)),
    "two of them": (["y = Mul s t"], (-1.0, 1.0)),
    "their sum": (["y = Add s t"], (-1.0, 2.0)),
    "the larger": (["y = Max s t"], (0.0, 1.0)),
    "the smaller": (["y = Min s t"], (-1.0, 1.0)),
    "joined": (["y = Concat s t axis=1"], (-1.0, 1.0)),
    "only moved": (["y = Transpose s"], (0.0, 1.0)),
    "cut": (["m = Mul s k", "y = Clip m low high"], (-0.5, 3.0)),
}


def made(steps: list[str]) -> Any:
    every = ["s = Sigmoid x", "t = Tanh x", *steps]
    places = {"pads": np.ones(8, np.int64), "none": np.zeros(0, np.float32)}
    scales = np.array([1, 1, 2, 2], np.float32)
    return graph([1, 4, 3, 3], *every, k=FACTOR, scales=scales, **places, **ENDS, outputs="y")


@pytest.mark.parametrize("what", CARRIED)
def test_ends_are_carried_on(what: str) -> None:
    steps, expected = CARRIED[what]
    assert bounds_of(ir.from_proto(made(steps)))["y"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "step",
    [
        "y = Exp x",
        "y = Add x k",
        "y = Mul x s",
        "y = Concat x s axis=1",
        # Both bring numbers of their own.
        "y = Pad s pads",
        "y = Resize s none scales mode='cubic'",
    ],
)
def test_what_has_no_ends_gets_none(step: str) -> None:
    assert "y" not in bounds_of(ir.from_proto(made([step])))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(CARRIED)), st.floats(0.01, 1e4), st.integers(0, 2**32 - 1))
def test_nothing_is_beyond_them(what: str, scale: float, seed: int) -> None:
    proto = made(CARRIED[what][0])
    x = (scale * np.random.default_rng(seed).normal(size=(1, 4, 3, 3))).astype(np.float32)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(["y"], {"x": x})
    low, high = bounds_of(ir.from_proto(proto))["y"]
    assert low - 1e-5 <= result.min() <= result.max() <= high + 1e-5
