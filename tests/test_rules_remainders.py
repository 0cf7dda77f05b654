"""Rules for remainders and bits of whole numbers."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import small_models as small
from hexport.rewrite.faults.integer_mod_to_div import IntegerModToDiv
from hexport.rewrite.support.bitwise_not_to_sub import BitwiseNotToSub
from hexport.rewrite.support.float_mod_to_floor import FloatModToFloor
from rule_checks import Feeds, assert_equivalent, cpu_ops, htp_sqnr, rewritten
from rule_outcomes import reasons

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def mod_model(dtype: int, fmod: int, shape: tuple[int, ...] = (4, 64)) -> onnx.ModelProto:
    return small.model(
        [helper.make_node("Mod", ["x", "z"], ["y"], name="n", fmod=fmod)],
        [small.value("x", list(shape), dtype), small.value("z", list(shape), dtype)],
        [small.value("y", list(shape), dtype)],
    )


def whole_feeds(dtype: type, largest: int, seed: int = 0, shape: tuple[int, ...] = (4, 64)) -> Feeds:
    rng = np.random.default_rng(seed)
    divisors = rng.integers(1, 50, shape) * rng.choice([-1, 1], shape)
    return {"x": rng.integers(-largest, largest, shape).astype(dtype), "z": divisors.astype(dtype)}


@given(SHAPES, st.sampled_from([0, 1]), st.sampled_from([np.int32, np.int64]))
@settings(max_examples=15, deadline=None)
def test_integer_mod(shape: tuple[int, ...], fmod: int, dtype: type) -> None:
    before = mod_model(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), fmod, shape)
    after, done = rewritten(before, IntegerModToDiv())
    assert done
    assert_equivalent(before, after, [whole_feeds(dtype, 2**30, shape=shape)], rtol=0, atol=0)


def test_integer_mod_is_wrong_before_and_exact_after_on_the_htp() -> None:
    feeds = [whole_feeds(np.int32, 2**20)]
    before = mod_model(TensorProto.INT32, 0)
    after, _ = rewritten(before, IntegerModToDiv())
    assert not cpu_ops(before)
    assert htp_sqnr(before, before, feeds) < 20
    assert htp_sqnr(before, after, feeds) == np.inf


def quarters(seed: int) -> Feeds:
    """Numbers whose remainders are exact in fp16, many of them where the quotient is whole."""
    feeds = whole_feeds(np.float32, 400, seed)
    return {name: x / 4 for name, x in feeds.items()}


def test_float_mod() -> None:
    before = mod_model(TensorProto.FLOAT, 1)
    after, done = rewritten(before, FloatModToFloor())
    assert done
    assert_equivalent(before, after, [quarters(seed) for seed in range(3)])
    assert cpu_ops(before) == {"Mod"}
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [quarters(0)]) > 50


def test_mods_leave_each_other_alone() -> None:
    assert "int32 or int64" in reasons(mod_model(TensorProto.FLOAT, 1), IntegerModToDiv())
    assert "float32 or float16" in reasons(mod_model(TensorProto.INT32, 1), FloatModToFloor())


def not_model(dtype: int) -> onnx.ModelProto:
    return small.model(
        [helper.make_node("BitwiseNot", ["x"], ["y"], name="n")],
        [small.value("x", [4, 8], dtype)],
        [small.value("y", [4, 8], dtype)],
        opset=18,
    )


def test_bitwise_not() -> None:
    before = not_model(TensorProto.INT32)
    after, _ = rewritten(before, BitwiseNotToSub())
    feeds = [{"x": whole_feeds(np.int32, 2**30, seed, (4, 8))["x"]} for seed in range(3)]
    assert_equivalent(before, after, feeds, rtol=0, atol=0)
    assert cpu_ops(before) == {"BitwiseNot"}
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, feeds) == np.inf
    assert "int32 or int64" in reasons(not_model(TensorProto.UINT8), BitwiseNotToSub())
