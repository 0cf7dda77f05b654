"""The rules for quantised models: each shown by a graph that keeps it and one that does not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hexport import facts
from hexport.facts.integer_ops import integer_rules
from operator_cases import IMAGE, SERIES, Array, Case, numbers
from operator_runs import FLOAT, INTEGER, Measured, as_written, measure
from qdq_graphs import Encoding, QdqGraph, channel_scales, encoded

TARGET = facts.find_target("SM8650")
RIGHT, WRONG = 60.0, 48.0
X, T = numbers(IMAGE), numbers(SERIES)
W, B = numbers((24, 16, 1, 1), "w"), numbers((24,), "b")


def convolved(weight: Array = W, bias: Array = B) -> Array:
    result: Array = np.einsum("nchw,oc->nohw", X, weight[:, :, 0, 0]) + bias.reshape(1, -1, 1, 1)
    return result


def least_multiplier(power: int, type_: str = "u16") -> Case:
    """Every other channel's x_scale · w_scale / y_scale is 2^power."""
    graph = QdqGraph(f"multiplier 2^{power} {type_}")
    end = encoded(convolved(bias=np.zeros(24, np.float32)), type_)
    wanted = 2.0**power * float(end[0]) / float(encoded(X, type_)[0])
    weight = W.copy()
    weight[1::2] *= (wanted / channel_scales(W, 0)[1::2]).reshape(-1, 1, 1, 1)
    return graph.ended(graph.node("Conv", graph.data(X, type_), graph.stored(weight, "s8", 0)), end)


def bias_scale(factor: float) -> Case:
    graph = QdqGraph(f"bias scale times {factor}")
    data, scales = graph.data(X, "u16"), encoded(X, "u16")[0] * channel_scales(W, 0)
    bias = graph.stored(B, "s32", 0, scale=scales * np.float32(factor))
    return graph.ended(graph.node("Conv", data, graph.stored(W, "s8", 0), bias), encoded(convolved(), "u16"))


def weights(type_: str) -> Case:
    graph = QdqGraph(f"weights in {type_}")
    above = np.abs(W)
    weight = graph.stored(above, type_, 0 if type_ == "s8" else None)
    end = encoded(convolved(above, np.zeros(24, np.float32)), "u16")
    return graph.ended(graph.node("Conv", graph.data(X, "u16"), weight), end)


def second_factor(first: str, second: str) -> Case:
    graph = QdqGraph(f"{first} times {second}")
    a, b = numbers((1, 4, 24, 32), "a"), numbers((1, 4, 32, 24), "b")
    return graph.ended(
        graph.node("MatMul", graph.data(a, first), graph.data(b, second)), encoded(a @ b, first)
    )


def bounded(op: str, *, whole: bool, end: bool) -> Case:
    """``op`` of numbers that reach neither end of its range."""
    graph = QdqGraph(f"{op} {'whole' if whole else 'seen'} {'end' if end else 'inside'}")
    narrow = numbers(SERIES, "narrow", -1.0, 1.0)
    functions = {
        "Tanh": np.tanh(narrow),
        "HardSigmoid": 0.2 * narrow + 0.5,
        "Sigmoid": 1 / (1 + np.exp(-narrow)),
    }
    scale, zero = (2.0**-15, 2**15) if op == "Tanh" else (2.0**-16, 0)
    canonical: Encoding = (np.array(scale, np.float32), np.array(zero, np.uint16))
    encoding = canonical if whole else encoded(functions[op], "u16")
    result = graph.node(op, graph.data(narrow, "u16"))
    if not end:
        turned = graph.rounded(result, encoding)
        result = graph.node("Mul", turned, graph.data(numbers(SERIES, "factor"), "u16"))
        encoding = encoded(numbers(SERIES, "factor"), "u16")
    return graph.ended(result, encoding)


def gated(height: int, *, apart: bool) -> Case:
    """A convolution's result times its own Sigmoid, as in every YOLO."""
    graph = QdqGraph(f"gated {'apart' if apart else 'together'} at {height}")
    x = numbers((1, 16, height, 12), "image")
    made: Array = np.einsum("nchw,oc->nohw", x, W[:, :, 0, 0])
    scale, zero = encoded(made, "u16")
    value = graph.rounded(graph.node("Conv", graph.data(x, "u16"), graph.stored(W, "s8", 0)), (scale, zero))
    read = graph.rounded(value, (scale * np.float32(1.02), zero)) if apart else value
    gate = graph.rounded(
        graph.node("Sigmoid", read), (np.array(2.0**-16, np.float32), np.array(0, np.uint16))
    )
    return graph.ended(graph.node("Mul", value, gate), encoded(made / (1 + np.exp(-made)), "u16"))


def island(kind: str, *, barrier: bool) -> Case:
    """Float operators between integers."""
    graph = QdqGraph(f"{kind} {'behind casts' if barrier else 'open'}")
    value = graph.data(X if kind.startswith("Conv") else T, "u16")
    if barrier:
        value = graph.node("Cast", graph.node("Cast", value, to=10), to=1)
    if kind.startswith("Conv"):
        value = graph.node("Conv", value, graph.constant(W), graph.constant(B))
        if "Relu" not in kind:
            return graph.ended(value, encoded(convolved(), "u16"))
        # An encoding that begins at 0 cuts there itself, so onnxruntime drops the Relu.
        return graph.ended(graph.node("Relu", value), encoded(np.maximum(convolved(), 0), "u16"))
    if kind == "MatMul and Add":
        weight, bias = numbers((32, 48), "w"), numbers((48,), "b")
        value = graph.node("Add", graph.node("MatMul", value, graph.constant(weight)), graph.constant(bias))
        return graph.ended(value, encoded(T @ weight + bias, "u16"))
    return graph.ended(graph.node(kind, value), encoded(numbers(SERIES, "end", 0.0, 0.5), "u16"))


def table(*, own: bool) -> Case:
    graph = QdqGraph(f"table, {'its own' if own else 'another'} encoding")
    rows = numbers((50, 32), "rows")
    found = graph.node("Gather", graph.stored(rows, "u16"), graph.given(np.array([[2, 0, 49]])))
    return graph.ended(found, encoded(rows if own else rows * 1.1, "u16"))


ISLANDS = ("Conv", "Conv and Relu", "MatMul and Add", "Softmax", "Sigmoid")
GATED = (8, 9, 10, 11, 12, 13)
BOUNDED = ("Sigmoid", "HardSigmoid", "Tanh")


@cache
def results() -> dict[str, Measured]:
    cases = [
        *(least_multiplier(power) for power in (-24, -25)),
        least_multiplier(-25, "u8"),
        *(bias_scale(factor) for factor in (1.0, 3.0)),
        *(weights(type_) for type_ in ("s8", "u8")),
        *(second_factor(*pair) for pair in (("u16", "s8"), ("u16", "u16"), ("u8", "u8"), ("u8", "s8"))),
        *(
            bounded(op, whole=whole, end=end)
            for op in BOUNDED
            for whole, end in ((True, True), (False, True), (False, False))
        ),
        *(gated(height, apart=True) for height in GATED),
        *(island(kind, barrier=barrier) for kind in ISLANDS for barrier in (True, False)),
        *(table(own=own) for own in (True, False)),
    ]
    return measure(cases, as_written, TARGET)


def test_the_least_multiplier() -> None:
    found = results()
    assert integer_rules()["least-multiplier"].value == 2.0**-24
    assert found["multiplier 2^-24 u16"].db > RIGHT
    assert found["multiplier 2^-25 u16"].db < 0
    assert found["multiplier 2^-25 u8"].db > 35


def test_the_bias_has_the_scale_of_the_sum() -> None:
    assert results()["bias scale times 1.0"].db > RIGHT
    assert results()["bias scale times 3.0"].db < WRONG


def test_weights_are_symmetric() -> None:
    assert results()["weights in s8"].db > RIGHT
    assert results()["weights in u8"].db < results()["weights in s8"].db - 20


def test_the_second_factor() -> None:
    found = results()
    assert found["u16 times s8"].db > RIGHT
    assert found["u16 times u16"].db < WRONG
    assert "u16,u8" in found["u16 times u16"].computed, "narrowed without a word"
    assert found["u8 times u8"].db > 40
    assert found["u8 times s8"].db < 10


@pytest.mark.parametrize("op", BOUNDED)
def test_the_whole_range_at_the_end(op: str) -> None:
    assert results()[f"{op} whole end"].db > RIGHT
    assert results()[f"{op} seen end"].db < WRONG
    assert results()[f"{op} seen inside"].db > RIGHT


@pytest.mark.parametrize("height", GATED)
def test_a_product_apart_from_its_sigmoid(height: int) -> None:
    """Not for the heights around them: there the HTP needs no help."""
    assert results()[f"gated apart at {height}"].db > RIGHT
    # Alone: it can spoil others in the same graph.
    (alone,) = measure([gated(height, apart=False)], as_written, TARGET).values()
    garbage = height in integer_rules()["apart-from-its-sigmoid"].sizes
    assert alone.db < WRONG if garbage else alone.db > RIGHT


@pytest.mark.parametrize("kind", ISLANDS)
def test_an_island_of_float_needs_a_barrier(kind: str) -> None:
    assert results()[f"{kind} behind casts"].place == FLOAT
    assert results()[f"{kind} open"].place == INTEGER


def test_a_table_in_its_own_encoding() -> None:
    assert results()["table, its own encoding"].place == INTEGER
    assert results()["table, another encoding"].place == FLOAT
