"""Unrolled recurrences: each place in the step is one, whatever the step; parallel uses are no recurrence."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.quantization.plan import SCHEMES, plan_for
from hexport.quantization.recurrences import places
from hexport.quantization.switches import harms
from quantised_graphs import ARCH, PLAIN, normal, workshop_with

make = helper.make_node
STEPS, WIDTH = 6, 8
GATES = ("r", "hr", "hz", "z", "rn", "n", "keep", "new", "less", "h")
"""What a step of ``gru`` makes, but for its products."""


def gru(steps: int = STEPS) -> onnx.ModelProto:
    """x[steps,1,8] through an unrolled GRU: each step reads what is its own of X·W, and the state before."""
    nodes = [make("Split", ["x"], [f"x{t}" for t in range(steps)], name="split", axis=0, num_outputs=steps)]
    for t in range(steps):
        before = "h_first" if t == 0 else f"h{t - 1}"
        lines = [
            ("Reshape", [f"x{t}", "row"], "in"),
            ("Gemm", [before, "wr", "br"], "ur"),
            ("Gemm", [before, "wz", "bz"], "uz"),
            ("Gemm", [before, "wn", "bn"], "un"),
            ("Add", [f"in{t}", f"ur{t}"], "hr"),
            ("Sigmoid", [f"hr{t}"], "r"),
            ("Add", [f"in{t}", f"uz{t}"], "hz"),
            ("Sigmoid", [f"hz{t}"], "z"),
            ("Mul", [f"r{t}", f"un{t}"], "rn"),
            ("Tanh", [f"rn{t}"], "n"),
            ("Sub", ["one", f"z{t}"], "less"),
            ("Mul", [f"z{t}", before], "keep"),
            ("Mul", [f"less{t}", f"n{t}"], "new"),
            ("Add", [f"keep{t}", f"new{t}"], "h"),
        ]
        nodes += [make(op, given, [f"{name}{t}"], name=f"{name}{t}") for op, given, name in lines]
    constants = {f"w{gate}": normal(WIDTH, WIDTH, seed=i, scale=0.3) for i, gate in enumerate("rzn")}
    constants |= {f"b{gate}": normal(WIDTH, seed=5 + i, scale=0.3) for i, gate in enumerate("rzn")}
    constants |= {
        "h_first": np.zeros((1, WIDTH), np.float32),
        "one": np.array(1, np.float32),
        "row": np.array([1, WIDTH], np.int64),
    }
    return small.model(
        nodes,
        [small.value("x", [steps, 1, WIDTH])],
        [small.value(f"h{steps - 1}", [1, WIDTH])],
        [small.constant(name, array) for name, array in constants.items()],
        opset=18,
    )


def by_place(proto: onnx.ModelProto) -> set[frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, place in places(ir.from_proto(proto)).items():
        found[place].add(name)
    return {frozenset(names) for names in found.values()}


def test_the_gates_of_the_inner_steps_are_one_place_each() -> None:
    found = by_place(gru())
    inner = range(2, STEPS - 2)
    for gate in GATES:
        together = {f"{gate}{t}" for t in inner}
        assert any(together <= names for names in found), gate
    # No place has two gates of one step.
    for names in found:
        steps = [name[-1] for name in names]
        assert len(steps) == len(set(steps)), names


def test_what_is_before_the_recurrence_is_not_of_it() -> None:
    found = places(ir.from_proto(gru()))
    assert "split" not in found
    assert not any(f"in{t}" in found for t in range(STEPS))


def test_a_few_uses_are_no_recurrence() -> None:
    assert by_place(gru(3)) == set()


def test_parallel_uses_of_a_weight_are_no_recurrence() -> None:
    """As of one head on many scales."""
    nodes = []
    for t in range(STEPS):
        nodes += [
            make("Gemm", [f"x{t}", "w"], [f"a{t}"], name=f"gemm{t}"),
            make("Sigmoid", [f"a{t}"], [f"y{t}"], name=f"sigmoid{t}"),
        ]
    proto = small.model(
        nodes,
        [small.value(f"x{t}", [1, WIDTH]) for t in range(STEPS)],
        [small.value(f"y{t}", [1, WIDTH]) for t in range(STEPS)],
        [small.constant("w", normal(WIDTH, WIDTH))],
    )
    assert places(ir.from_proto(proto)) == {}


def test_a_deep_model_without_shared_weights_is_none() -> None:
    nodes, constants = [], []
    for t in range(STEPS):
        given = "x" if t == 0 else f"y{t - 1}"
        nodes.append(make("Gemm", [given, f"w{t}"], [f"y{t}"], name=f"gemm{t}"))
        constants.append(small.constant(f"w{t}", normal(WIDTH, WIDTH, seed=t)))
    inputs, outputs = [small.value("x", [1, WIDTH])], [small.value(f"y{STEPS - 1}", [1, WIDTH])]
    proto = small.model(nodes, inputs, outputs, constants)
    assert places(ir.from_proto(proto)) == {}


def samples(proto: onnx.ModelProto) -> list[dict[str, np.ndarray]]:
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return [{"x": normal(*shape, seed=seed)} for seed in range(3)]


def test_the_steps_of_a_gate_are_judged_as_one(tmp_path: Path) -> None:
    proto = gru()
    shop = workshop_with(proto, tmp_path, samples(proto))
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    found = harms(
        shop.model, plan, shop.activations(PLAIN.ranges), shop.integers(plan, PLAIN), samples(proto)[:1],
        tmp_path, ARCH,
    )  # fmt: skip
    units = [set(harm.nodes) for harm in found]
    assert {name for unit in units for name in unit} == set(plan.precisions)
    for gate in ("z", "n", "keep"):
        assert any({f"{gate}{t}" for t in range(2, STEPS - 2)} <= unit for unit in units)


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_a_state_that_is_zero_does_not_make_shared_weights_coarse(tmp_path: Path, scheme: str) -> None:
    """The first step reads zeros; the scale that its bias would need must not become everybody's."""
    nodes = [
        make("Mul", ["x", "nothing"], ["zero"], name="zero"),
        make("Gemm", ["zero", "w", "b"], ["first"], name="silent"),
        make("Gemm", ["x", "w", "b"], ["second"], name="loud"),
        make("Add", ["first", "second"], ["y"], name="sum"),
    ]
    proto = small.model(
        nodes,
        [small.value("x", [4, WIDTH])],
        [small.value("y", [4, WIDTH])],
        [
            small.constant("nothing", np.array(0, np.float32)),
            small.constant("w", normal(WIDTH, WIDTH)),
            small.constant("b", normal(WIDTH, seed=1)),
        ],
    )
    shop = workshop_with(proto, tmp_path, samples(proto))
    histogram = shop.histograms["zero"]
    assert histogram.low == histogram.high == 0
    integers = shop.integers(plan_for(shop.model, SCHEMES[scheme], ARCH), PLAIN)
    assert integers["silent"].integers is integers["loud"].integers
    largest = np.abs(shop.layers["loud"].weight).max(axis=0)
    np.testing.assert_allclose(integers["loud"].encoding.scale, largest / 127, rtol=1e-5)
