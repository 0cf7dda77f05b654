"""What is worse, and what is not: rows of made verdicts and outputs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport import facts
from hexport.backend.native_log import DdrTraffic
from hexport.backend.where import HTP, QNN_CPU, on_chip
from hexport.comparison.measuring import Loaded, Measured
from hexport.comparison.numerics import loaded_rows, numeric_rows
from hexport.comparison.regression import compiled_rows, new_cpu_nodes
from hexport.comparison.rows import Cell, Row
from hexport.comparison.sides import Side, make_sides
from hexport.comparison.tolerance import AS_GOOD_AS_EXACT_DB, Tolerance, make_tolerance
from hexport.errors import HexportError, UsageError
from hexport.observe.verdict import CpuNode, Partition, Share, Verdict
from hexport.verification.subject import CPU

A, B = Side("this", HTP), Side("other", HTP)
TOLERANCE = Tolerance()
amounts = st.integers(0, 2**40)


def verdict(**changed: Any) -> Verdict:
    whole = Verdict(
        model="m.onnx",
        where=on_chip(facts.find_target("SM8650")),
        scheme="fp16",
        input_shapes={"x": (1, 4)},
        nodes=Share(10, 0),
        macs=Share(1000, 0),
        uncounted=(),
        partitions=(Partition(10, "first", "last"),),
        cpu_nodes=(),
        io_quantization=(),
        folded=0,
        added=0,
        precisions={"FP16": 10},
        compile_seconds=1.0,
        ddr=DdrTraffic(spill=0, fill=0, write_total=100, read_total=900),
        context_bytes=1000,
        vtcm_mb=4,
        warnings=(),
    )
    return replace(whole, **changed)


def on_cpu(name: str, op: str = "Erf") -> CpuNode:
    return CpuNode(name, op, "not supported", "op-not-registered", "rewrite it", 0, cuts=True)


def rows(a: Measured, b: Measured) -> dict[str, Row]:
    return {row.figure: row for row in compiled_rows(a, b, TOLERANCE)}


def worse(a: Verdict, b: Verdict) -> set[str]:
    return {name for name, row in rows(Measured(A, a), Measured(B, b)).items() if row.worse}


def test_the_same_is_not_worse() -> None:
    assert worse(verdict(), verdict()) == set()


@pytest.mark.parametrize(
    ("changed", "figure"),
    [
        ({"context_bytes": 1101}, "context_bytes"),
        ({"ddr": DdrTraffic(0, 0, 100, 1001)}, "ddr_bytes"),
        ({"partitions": (Partition(5, "a", "b"), Partition(5, "c", "d"))}, "partitions"),
        ({"nodes": Share(9, 1), "cpu_nodes": (on_cpu("e"),)}, "nodes_cpu"),
    ],
)
def test_what_is_worse(changed: dict[str, Any], figure: str) -> None:
    assert worse(verdict(), verdict(**changed)) == {figure}
    # The other way round it is better.
    assert worse(verdict(**changed), verdict()) == set()


@pytest.mark.parametrize(
    "changed",
    [
        {"context_bytes": 1100},
        # Written bytes are a small part of the traffic, and it is the whole that takes time.
        {"ddr": DdrTraffic(50, 50, 180, 900)},
        {"compile_seconds": 100.0},
        {"precisions": {"INT8": 3}},
        {"nodes": Share(4, 0)},
    ],
)
def test_what_is_not(changed: dict[str, Any]) -> None:
    assert worse(verdict(), verdict(**changed)) == set()


def test_more_work_on_the_npu_may_take_more() -> None:
    less, more = verdict(nodes=Share(5, 5), context_bytes=500), verdict()
    found = rows(Measured(A, less), Measured(B, more))["context_bytes"]
    assert (found.ratio, found.worse) == (2, "")
    assert "not judged" in found.b.note
    assert rows(Measured(A, more), Measured(B, replace(less, context_bytes=2000)))["context_bytes"].worse


def test_another_node_on_the_cpu_is_new_although_there_are_as_many() -> None:
    a, b = verdict(cpu_nodes=(on_cpu("one"),)), verdict(cpu_nodes=(on_cpu("two"),))
    assert [n.name for n in new_cpu_nodes(Measured(A, a), Measured(B, b))] == ["two"]
    # A release without a trace gives fused nodes other names: there the number of each operator counts.
    assert new_cpu_nodes(Measured(A, a, traced=False), Measured(B, b)) == ()
    more = replace(b, cpu_nodes=(on_cpu("two"), on_cpu("three"), on_cpu("four", "Sin")))
    found = new_cpu_nodes(Measured(A, a, traced=False), Measured(B, more))
    assert {n.name for n in found} == {"two", "three", "four"}


def test_what_a_side_does_not_tell_is_no_zero() -> None:
    untold = verdict(precisions={}, ddr=None, context_bytes=None)
    found = rows(Measured(A, untold, traced=False), Measured(Side("other", QNN_CPU), untold))
    for figure in ("precisions", "ddr_bytes", "ddr_spilled_bytes", "context_bytes"):
        row = found[figure]
        assert (row.a.value, row.b.value, row.ratio, row.difference) == (None, None, None, None)
        assert row.a.note
        assert row.b.note
        assert not row.worse
    assert "no trace" in found["precisions"].a.note
    assert QNN_CPU in found["ddr_bytes"].b.note
    # A spill of nothing is a zero.
    told = rows(Measured(A, verdict()), Measured(B, verdict()))
    assert (told["ddr_spilled_bytes"].a.value, told["ddr_spilled_bytes"].a.note) == (0, "")


def test_a_side_that_fails_is_told_in_the_table() -> None:
    error = HexportError("it crashed", why="SIGSEGV")
    found = rows(Measured(A, verdict()), Measured(B, failure=error))
    assert found["works"].worse
    assert (found["works"].a.value, found["works"].b.value) == (True, False)
    assert "HX000 it crashed: SIGSEGV" in found["works"].b.note
    assert found["context_bytes"].b == Cell(note="htp of other did not compile it")
    ran = rows(Measured(A, verdict()), Measured(B, verdict(), failure=error))
    assert "compiled, but not run" in ran["works"].b.note
    assert ran["context_bytes"].b.value == 1000


def test_nothing_is_compiled_on_the_cpu() -> None:
    found = rows(Measured(A, verdict()), Measured(Side("this", CPU)))
    assert found["works"].b.value is True
    assert "compiles nothing" in found["nodes_npu"].b.note
    assert not any(row.worse for row in found.values())


def outputs(noise: float) -> tuple[dict[str, np.ndarray], ...]:
    """Two samples of one output, of power 1, with so much noise."""
    return tuple({"y": np.full(8, 1.0) + noise * sign} for sign in (1.0, -1.0))


def test_decibels_are_held_against_the_original() -> None:
    a, b = Measured(A, verdict(), outputs(1e-3)), Measured(B, verdict(), outputs(1e-2))
    row, between = numeric_rows(outputs(0), a, b, TOLERANCE)
    assert row.a.number == pytest.approx(60)
    assert row.b.number == pytest.approx(40)
    assert row.difference == pytest.approx(-20)
    assert row.worse
    assert between.b.number == pytest.approx(-20 * math.log10(9e-3 / (1 + 1e-3)), abs=0.1)
    assert (between.a, between.worse) == (Cell(), "")
    (better, _) = numeric_rows(outputs(0), b, a, TOLERANCE)
    assert not better.worse
    (loose, _) = numeric_rows(outputs(0), a, b, Tolerance(max_drop_db=20.1))
    assert not loose.worse


def test_decibels_that_are_not_there() -> None:
    a, b = Measured(A, verdict(), outputs(0)), Measured(B, failure=HexportError("no"))
    row, between = numeric_rows(outputs(0), a, b, TOLERANCE)
    assert row.to_json()["a"] == "exact"
    assert row.b.value is None
    assert row.b.note
    assert between.b.note
    json.dumps([row.to_json(), between.to_json()], allow_nan=False)


@pytest.mark.parametrize(
    ("a", "b", "answers", "is_worse"),
    [
        (Loaded(outputs(0)), Loaded(failure=HexportError("too new")), (True, False), True),
        (Loaded(failure=HexportError("too new")), Loaded(outputs(0)), (False, True), False),
        (Loaded(untried="shared"), Loaded(outputs(0)), (None, True), False),
    ],
)
def test_a_packaged_binary(
    a: Loaded, b: Loaded, answers: tuple[bool | None, bool | None], is_worse: bool
) -> None:
    loads, exact = loaded_rows(outputs(0), a, b, TOLERANCE)
    assert (loads.a.value, loads.b.value) == answers
    assert bool(loads.worse) == is_worse
    for cell, loaded in ((exact.a, a), (exact.b, b)):
        assert (cell.value is None) == (not loaded.outputs)


@given(amounts, amounts, st.floats(0, 1000))
def test_more_is_worse_from_the_tolerance_on(a: int, b: int, percent: float) -> None:
    allowed = Tolerance(max_more_percent=percent)
    assert allowed.too_much(a, b) == (b > a * (1 + percent / 100))
    assert not allowed.too_much(a, a)
    if allowed.too_much(a, b):
        assert allowed.too_much(a, b + 1)
        assert not allowed.too_much(b, a)


@given(st.floats(-300, 300), st.floats(-300, 300), st.floats(0, 50))
def test_less_is_worse_from_the_tolerance_on(a: float, b: float, drop: float) -> None:
    allowed = Tolerance(max_drop_db=drop)
    assert not (allowed.too_noisy(a, b) and allowed.too_noisy(b, a))
    assert not allowed.too_noisy(a, max(a, b))
    assert not allowed.too_noisy(math.inf, AS_GOOD_AS_EXACT_DB + abs(b))
    assert allowed.too_noisy(a, -math.inf)
    assert not allowed.too_noisy(-math.inf, b)


@pytest.mark.parametrize(("given_", "percent"), [("10%", 10.0), ("0", 0.0), (25.0, 25.0), (" 5 % ", 5.0)])
def test_a_percentage_is_read(given_: str | float, percent: float) -> None:
    assert make_tolerance(given_, 3.0).max_more_percent == percent


@pytest.mark.parametrize(
    ("more", "drop"), [("ten", 3.0), ("-1", 3.0), ("nan", 3.0), ("10", -1.0), ("10", math.inf)]
)
def test_a_tolerance_that_is_none(more: str, drop: float) -> None:
    with pytest.raises(UsageError):
        make_tolerance(more, drop)


def test_sides_are_two() -> None:
    assert [(s.toolchain, s.backend) for s in make_sides((), ("simulator", "cpu"))] == [
        ("this", HTP),
        ("this", CPU),
    ]
    assert [s.backend for s in make_sides(("this",), (QNN_CPU, HTP))] == [QNN_CPU, HTP]
    for toolchains, backends in (
        ((), ()),
        (("this",), ("htp",)),
        (("this", "this"), ("htp", "simulator")),
        (("this",) * 3, ()),
        ((), ("htp", "cpu", "gpu")),
        ((), ("htp", "npu")),
        (("this", "no-such"), ()),
    ):
        with pytest.raises(HexportError):
            make_sides(toolchains, backends)
