"""Ranges measured on real runs, and what of them fp16 cannot hold."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper

import small_models as small
from hexport.preparation import ranges as ranges_module
from hexport.preparation.ranges import Danger, Finding, Range, find_dangers, measure_ranges, range_of


def log_of_squares() -> onnx.ModelProto:
    """x → x² → sum of 64 → Max(·, 1e-10) → Log."""
    return small.model(
        [
            helper.make_node("Mul", ["x", "x"], ["squares"], name="square"),
            helper.make_node("ReduceSum", ["squares", "axes"], ["sum"], name="sum"),
            helper.make_node("Max", ["sum", "floor"], ["floored"], name="floor"),
            helper.make_node("Log", ["floored"], ["y"], name="log"),
        ],
        [small.value("x", [2, 64])],
        [small.value("y", [2, 1])],
        [small.constant("axes", np.array([1])), small.constant("floor", np.array(1e-10, np.float32))],
    )


def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.uniform(-200, 200, (2, 64)).astype(np.float32)} for _ in range(2)]


def test_ranges_are_those_of_numpy() -> None:
    found = measure_ranges(ir.from_proto(log_of_squares()), samples())
    x = np.stack([sample["x"] for sample in samples()])
    sums = (x.astype(np.float64) ** 2).sum(axis=2)
    assert set(found) == {"x", "squares", "sum", "floored", "y"}
    assert found["x"] == range_of(x)
    np.testing.assert_allclose([found["sum"].low, found["sum"].high], [sums.min(), sums.max()], rtol=1e-5)
    np.testing.assert_allclose(found["y"].high, np.log(sums.max()), rtol=1e-5)
    np.testing.assert_allclose(found["squares"].smallest, np.abs(x).min() ** 2, rtol=1e-5)


def test_small_chunks_find_the_same(monkeypatch: object) -> None:
    model = ir.from_proto(log_of_squares())
    whole = measure_ranges(model, samples()[:1])
    monkeypatch.setattr(ranges_module, "_CHUNK", 130)  # type: ignore[attr-defined]
    assert len(list(ranges_module._chunks(model, 1))) > 1
    assert measure_ranges(model, samples()[:1]) == whole


def test_dangers_are_named_where_they_begin() -> None:
    model = ir.from_proto(log_of_squares())
    measured = measure_ranges(model, samples()[:1])
    overflow = Finding(Danger.OVERFLOW, "sum", "ReduceSum", "sum", measured["sum"].magnitude)
    floor = Finding(Danger.LOST_FLOOR, "floor", "Max", "floor", float(np.float32(1e-10)))
    assert set(find_dangers(model, measured)) == {overflow, floor}


def test_a_mask_and_an_underflow_are_found() -> None:
    smallest = float(np.finfo(np.float32).min)
    proto = small.model(
        [
            helper.make_node("Mul", ["x", "mask"], ["giant"]),
            helper.make_node("Mul", ["x", "tiny"], ["small"]),
            helper.make_node("Clip", ["x", "", "no_bound"], ["clipped"]),
            helper.make_node("Concat", ["giant", "small", "clipped"], ["y"], axis=0),
        ],
        [small.value("x", [3])],
        [small.value("y", [9])],
        [
            small.constant("mask", np.array([smallest], np.float32)),
            small.constant("tiny", np.array(1e-9, np.float32)),
            small.constant("no_bound", np.array(np.inf, np.float32)),
        ],
    )
    ranges = {
        "x": Range(0.5, 1, 0.5),
        "giant": Range(smallest, smallest / 2, -smallest / 2),
        "small": Range(5e-10, 1e-9, 5e-10),
    }
    found = {(f.danger, f.tensor, f.value) for f in find_dangers(ir.from_proto(proto), ranges)}
    assert found == {
        (Danger.GIANT_CONSTANT, "mask", smallest),
        (Danger.OVERFLOW, "giant", -smallest),
        (Danger.UNDERFLOW, "small", 1e-9),
    }


def test_infinity_and_nan_are_said_and_not_counted() -> None:
    assert range_of(np.array([np.inf, np.nan, -2.0, 0.0, 0.5])) == Range(-2.0, 0.5, 0.5, True, True)
    assert range_of(np.array([np.nan])) == Range(0.0, 0.0, 0.0, nan=True)
    assert range_of(np.zeros((0, 3))) == Range(0.0, 0.0, 0.0)


_ARRAYS = arrays.arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e6, 1e6, width=32))


@given(_ARRAYS, _ARRAYS)
def test_joining_is_measuring_together(a: np.ndarray, b: np.ndarray) -> None:
    assert range_of(a).joined(range_of(b)) == range_of(np.concatenate([a, b]))
