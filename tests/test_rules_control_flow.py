"""Loop and Scan → their bodies, written out; If on a constant → its branch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnxscript.optimizer import fold_constants

import small_models as small
from hexport.rewrite.any_outputs import AnyOutputs
from hexport.rewrite.support.if_to_where import IfToWhere
from hexport.rewrite.support.loop_unrolled import LoopUnrolled
from hexport.rewrite.support.scan_unrolled import ScanUnrolled
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten

WIDTH = 8


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", **attributes)


def loop_body(
    extra: list[onnx.NodeProto] | None = None, condition: list[onnx.NodeProto] | None = None
) -> onnx.GraphProto:
    """v ← tanh(v·w + turn), with w from outside and a scale of its own; s = v·scale is stacked."""
    nodes = [
        node("Cast", ["turn"], ["turn_float"], to=TensorProto.FLOAT),
        node("MatMul", ["v", "w"], ["product"]),
        node("Add", ["product", "turn_float"], ["moved"]),
        node("Tanh", ["moved"], ["v_next"]),
        node("Mul", ["v_next", "scale"], ["s"]),
        *(condition or [node("Identity", ["go"], ["go_on"])]),
        *(extra or []),
    ]
    return helper.make_graph(
        nodes,
        "body",
        [
            small.value("turn", [], TensorProto.INT64),
            small.value("go", [], TensorProto.BOOL),
            small.value("v", [1, WIDTH]),
            small.value("kept", [1, WIDTH]),
        ],
        [
            small.value("go_on", [], TensorProto.BOOL),
            small.value("v_next", [1, WIDTH]),
            small.value("kept", [1, WIDTH]),
            small.value("s", [1, WIDTH]),
        ],
        [small.constant("scale", np.array([0.5], np.float32))],
    )


def loop_model(
    trips: int = 3,
    *,
    body: onnx.GraphProto | None = None,
    inputs: tuple[str, str] = ("trips", "go_at_all"),
    outputs: tuple[str, ...] = ("last", "kept_out", "all"),
    go: bool = True,
    opset: int = 17,
) -> onnx.ModelProto:
    shapes = {"last": [1, WIDTH], "kept_out": [1, WIDTH], "all": [trips, 1, WIDTH]}
    weight = np.random.default_rng(0).normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)
    return small.model(
        [helper.make_node("Loop", [*inputs, "x", "k"], list(outputs), name="loop", body=body or loop_body())],
        [small.value("x", [1, WIDTH]), small.value("k", [1, WIDTH])],
        [small.value(name, list(shapes[name])) for name in outputs if name],
        [
            small.constant("w", weight),
            small.constant("trips", np.array(trips)),
            small.constant("go_at_all", np.array(go)),
        ],
        opset,
    )


def assert_unrolled_right(before: onnx.ModelProto, rule: AnyOutputs, *nodes: str) -> onnx.ModelProto:
    after, done = rewritten(before, rule)
    assert [(a.rule, a.nodes) for a in done] == [(type(rule).__name__, nodes)]
    assert rule.op_type not in {n.op_type for n in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])
    return after


@pytest.mark.parametrize("trips", [1, 4])
@pytest.mark.parametrize("opset", [11, 13, 22])
def test_loop(trips: int, opset: int) -> None:
    assert_unrolled_right(loop_model(trips, opset=opset), LoopUnrolled(), "loop")


@pytest.mark.parametrize("outputs", [("last",), ("", "", "all"), ("", "kept_out"), ("last", "", "all")])
def test_loop_with_some_of_its_outputs(outputs: tuple[str, ...]) -> None:
    # ONNX wants every output of a Loop named; what nothing reads is the same to the rule.
    named = tuple(name or f"unused_{i}" for i, name in enumerate((*outputs, *[""] * 3)[:3]))
    before = loop_model()
    before.graph.node[0].output[:] = named
    for value in list(before.graph.output):
        if value.name not in named:
            before.graph.output.remove(value)
    assert_unrolled_right(before, LoopUnrolled(), "loop")


def test_loop_without_a_condition() -> None:
    assert_unrolled_right(loop_model(inputs=("trips", "")), LoopUnrolled(), "loop")


def test_condition_made_in_the_body() -> None:
    true = small.constant("true", np.array(True))
    body = loop_body(condition=[node("Constant", [], ["go_on"], value=true)])
    assert_unrolled_right(loop_model(body=body), LoopUnrolled(), "loop")


def test_loop_in_a_loop() -> None:
    inner = helper.make_node(
        "Loop", ["two", "", "v_next"], ["again", "seen"], name="inner", body=inner_body()
    )
    body = loop_body(extra=[node("Constant", [], ["two"], value=small.constant("", np.array(2))), inner])
    body.output[1].name = "again"
    before = loop_model(2, body=body)
    assert_unrolled_right(before, LoopUnrolled(), "loop", "loop/0/inner", "loop/1/inner")


def inner_body() -> onnx.GraphProto:
    """Reads a value of the body around it, and the same weight from outside both."""
    return helper.make_graph(
        [
            node("MatMul", ["inner_v", "w"], ["inner_product"]),
            node("Add", ["inner_product", "turn_float"], ["inner_next"]),
            node("Identity", ["inner_go"], ["inner_go_on"]),
            node("Neg", ["inner_next"], ["inner_s"]),
        ],
        "inner",
        [
            small.value("inner_turn", [], TensorProto.INT64),
            small.value("inner_go", [], TensorProto.BOOL),
            small.value("inner_v", [1, WIDTH]),
        ],
        [
            small.value("inner_go_on", [], TensorProto.BOOL),
            small.value("inner_next", [1, WIDTH]),
            small.value("inner_s", [1, WIDTH]),
        ],
    )


def computed_end() -> onnx.ModelProto:
    stop = [
        node("ReduceMax", ["v_next"], ["largest"], keepdims=0),
        node("Less", ["largest", "scale"], ["below"]),
        node("Squeeze", ["below"], ["go_on"]),
    ]
    return loop_model(body=loop_body(condition=stop), outputs=("last", "kept_out"))


def counting_body(*, bound: str = "steps", step: str = "one") -> onnx.GraphProto:
    """The loop of ``loop_body`` as Keras writes it: its end is a counter's, which is carried along."""
    body = loop_body(
        condition=[
            node("Add", ["step", step], ["step_next"]),
            node("Cast", ["step_next"], ["reached"], to=TensorProto.FLOAT),
            node("Cast", [bound], ["end"], to=TensorProto.FLOAT),
            node("Less", ["reached", "end"], ["go_on"]),
        ]
    )
    states = [small.value(name, [], TensorProto.INT64) for name in ("step", "steps")]
    body.input.extend(states)
    body.output.insert(3, small.value("step_next", [], TensorProto.INT64))
    body.output.insert(4, small.value("steps", [], TensorProto.INT64))
    body.initializer.append(small.constant("one", np.array(1)))
    return body


def counting_loop(
    steps: int, *, begin: int = 0, limit: int | None = None, body: onnx.GraphProto | None = None
) -> onnx.ModelProto:
    runs = min(max(steps - begin, 1), limit or 10**9)
    model = loop_model(runs, body=body or counting_body(), inputs=("limit" if limit else "", "go_at_all"))
    model.graph.node[0].input.extend(["begin", "steps_given"])
    model.graph.node[0].output[:] = ["last", "kept_out", "step_out", "steps_out", "all"]
    model.graph.initializer.extend(
        small.constant(name, np.array(number))
        for name, number in (("begin", begin), ("steps_given", steps), ("limit", limit or 0))
    )
    return model


@pytest.mark.parametrize(
    ("steps", "begin", "limit"), [(4, 0, None), (5, 3, None), (1, 3, None), (6, 0, 2), (2, 0, 6)]
)
def test_loop_whose_end_is_counted(steps: int, begin: int, limit: int | None) -> None:
    """Also where the condition is false after the first run, and where the limit comes first."""
    assert_unrolled_right(counting_loop(steps, begin=begin, limit=limit), LoopUnrolled(), "loop")


def bound_as_input() -> onnx.ModelProto:
    model = counting_loop(3)
    (steps,) = (t for t in model.graph.initializer if t.name == "steps_given")
    model.graph.initializer.remove(steps)
    model.graph.input.append(small.value("steps_given", [], TensorProto.INT64))
    return model


def bound_from_outside() -> onnx.ModelProto:
    model = counting_loop(3, body=counting_body(bound="outside"))
    model.graph.input.append(small.value("outside", [], TensorProto.INT64))
    return model


def step_by_chance() -> onnx.ModelProto:
    body = counting_body(step="some")
    draw = node("Bernoulli", ["half"], ["drawn"])
    body.node.insert(0, node("Cast", ["drawn"], ["some"], to=TensorProto.INT64))
    body.node.insert(0, draw)
    body.initializer.append(small.constant("half", np.array(0.5, np.float32)))
    return counting_loop(3, body=body)


def step_by_another_domain() -> onnx.ModelProto:
    body = counting_body(step="some")
    body.node.insert(0, node("FastGelu", ["one"], ["some"], domain="com.microsoft"))
    model = counting_loop(3, body=body)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def trips_as_input() -> onnx.ModelProto:
    model = loop_model(outputs=("last", "kept_out"))
    (trips,) = (t for t in model.graph.initializer if t.name == "trips")
    model.graph.initializer.remove(trips)
    model.graph.input.append(small.value("trips", [], TensorProto.INT64))
    return model


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (lambda: computed_end(), "when it ends is computed in the loop (`go_on`)"),
        (lambda: trips_as_input(), "the number of runs is not constant"),
        (
            lambda: loop_model(outputs=("last", "kept_out"), inputs=("", "go_at_all")),
            "it runs more than 2048 times",
        ),
        (lambda: bound_as_input(), "when it ends is computed in the loop (`go_on`), from `steps_given`"),
        (lambda: bound_from_outside(), "when it ends is computed in the loop (`go_on`), from `outside`"),
        (lambda: step_by_another_domain(), "when it ends could not be computed"),
        (lambda: step_by_chance(), "(`go_on`), by Bernoulli `Bernoulli_drawn`"),
        (lambda: loop_model(go=False, outputs=("last", "kept_out")), "it never runs"),
        (lambda: loop_model(1000), "1000 runs would make 6000 nodes, more than 2048"),
    ],
)
def test_says_why_not(before: Any, reason: str) -> None:
    model = before()
    if len(model.graph.node[0].output) == 2:
        model.graph.node[0].output.append("unused")
    rule = LoopUnrolled()
    _, done = rewritten(model, rule)
    assert not done
    ((name, why),) = set(rule.missed)
    assert name == "loop"
    assert reason in why


def scan_model(runs: int = 3, *, axis: int = 0, backwards: bool = False, **sizes: int) -> onnx.ModelProto:
    """A running sum along an axis, and its doubles stacked along the same axis."""
    width = sizes.get("width", WIDTH)
    shape = [width, width]
    body = helper.make_graph(
        [node("Add", ["sum", "slice"], ["sum_next"]), node("Add", ["sum_next", "sum_next"], ["double"])],
        "body",
        [small.value("sum", [width]), small.value("slice", [width])],
        [small.value("sum_next", [width]), small.value("double", [width])],
    )
    shape[axis] = runs
    way: dict[str, Any] = {"scan_input_axes": [axis], "scan_output_axes": [axis]} if axis else {}
    if backwards:
        way |= {"scan_input_directions": [1], "scan_output_directions": [1]}
    scan = helper.make_node(
        "Scan", ["start", "x"], ["last", "all"], name="scan", body=body, num_scan_inputs=1, **way
    )
    inputs = [small.value("start", [width]), small.value("x", list(shape))]
    return small.model([scan], inputs, [small.value("last", [width]), small.value("all", list(shape))])


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 1), st.booleans())
@settings(max_examples=12, deadline=None)
def test_scan(runs: int, width: int, axis: int, backwards: bool) -> None:
    before = scan_model(runs, axis=axis, backwards=backwards, width=width)
    assert_unrolled_right(before, ScanUnrolled(), "scan")


def test_scan_says_why_not() -> None:
    long = scan_model(2000)
    dynamic = scan_model()
    for value in (dynamic.graph.input[1], dynamic.graph.output[1]):
        value.type.tensor_type.shape.dim[0].dim_param = "length"
    for model, reason in ((long, "2000 runs would make 4000 nodes"), (dynamic, "is not fixed")):
        rule = ScanUnrolled()
        _, done = rewritten(model, rule)
        assert not done
        assert {reason in why for _, why in rule.missed} == {True}


@pytest.mark.parametrize("opset", [8, 9])
def test_scan_over_batches_is_left_alone(opset: int) -> None:
    """Opset 8 has lengths, here left out, before the states, and a batch axis everywhere."""
    before = scan_model()
    before.opset_import[0].version = opset
    if opset == 8:
        before.graph.node[0].input.insert(0, "")
        for value in (*before.graph.input, *before.graph.output):
            value.type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=2))
    rule = ScanUnrolled()
    after, done = rewritten(before, rule)
    assert bool(done) == (opset == 9)
    assert [why for _, why in rule.missed] == ["Scan before opset 9 runs over batches"] * (opset == 8)
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


@pytest.mark.parametrize(("make", "rule"), [(loop_model, LoopUnrolled), (scan_model, ScanUnrolled)])
def test_the_backend_before_and_after(make: Any, rule: type[AnyOutputs]) -> None:
    before = make()
    after, _ = rewritten(before, rule())
    assert rule.op_type in cpu_ops(before)
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before, seed) for seed in range(3)]) > 40


@pytest.mark.parametrize("taken", [True, False])
def test_folding_takes_the_branch_of_an_if_on_a_constant(taken: bool) -> None:
    """No rule is needed: this holds as long as onnxscript's folding does it."""

    def branch(op: str) -> onnx.GraphProto:
        inner = helper.make_graph([node(op, ["x"], [f"{op}_in"])], op, [], [small.value(f"{op}_in", [WIDTH])])
        outer = helper.make_node(
            "If", ["flag"], [f"{op}_out"], name=f"If_{op}", then_branch=inner, else_branch=inner
        )
        return helper.make_graph([outer], f"outer_{op}", [], [small.value(f"{op}_out", [WIDTH])])

    choice = helper.make_node(
        "If", ["flag"], ["y"], name="if", then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    flag = small.constant("flag", np.array(taken))
    before = small.model([choice], [small.value("x", [WIDTH])], [small.value("y", [WIDTH])], [flag])
    model = ir.from_proto(before)
    fold_constants(model)
    after = ir.to_proto(model)
    assert {n.op_type for n in after.graph.node} == {"Relu" if taken else "Neg"}
    assert_equivalent(before, after, [random_feeds(before)])


def test_inside_a_branch() -> None:
    """The branch reads the model's values; what was replaced is gone from it."""
    inside = loop_model()
    branches = {
        "then_branch": helper.make_graph(list(inside.graph.node), "then", [], list(inside.graph.output)[:1]),
        "else_branch": helper.make_graph(
            [node("Neg", ["x"], ["y_else"])], "else", [], [small.value("y_else", [1, WIDTH])]
        ),
    }
    before = small.model(
        [helper.make_node("If", ["flag"], ["y"], name="if", **branches)],
        [*inside.graph.input, small.value("flag", [], TensorProto.BOOL)],
        [small.value("y", [1, WIDTH])],
        list(inside.graph.initializer),
    )
    after, done = rewritten(before, LoopUnrolled())
    assert [a.nodes for a in done] == [("loop",)]
    branch = next(a.g for a in after.graph.node[0].attribute if a.name == "then_branch")
    assert "Loop" not in {n.op_type for n in branch.node}
    for flag in (True, False):
        assert_equivalent(before, after, [{**random_feeds(before), "flag": np.array(flag)}])


def if_model(sizes: tuple[int, int] = (WIDTH, WIDTH), rank: int = 2) -> onnx.ModelProto:
    """Where the mean of x is positive, a layer with weights of the graph around; else x as it is, and −x."""
    then = [
        node("MatMul", ["x", "w"], ["product"]),
        node("Tanh", ["product"], ["t"]),
        node("Neg", ["product"], ["u"]),
    ]
    otherwise = [node("Identity", ["x"], ["e"]), node("Neg", ["x"], ["f"])]
    branches = [
        helper.make_graph(nodes, name, [], [small.value(n, [1, size]) for n in names])
        for nodes, name, names, size in zip(
            (then, otherwise), ("then", "else"), (("t", "u"), ("e", "f")), sizes, strict=True
        )
    ]
    choice = helper.make_node(
        "If", ["go"], ["y", "z"], name="if", then_branch=branches[0], else_branch=branches[1]
    )
    weight = np.random.default_rng(0).normal(0, 0.3, (WIDTH, sizes[0])).astype(np.float32)
    return small.model(
        [
            node("ReduceMean", ["x"], ["mean"], keepdims=int(rank == 2)),
            node("Greater", ["mean", "zero"], ["go"]),
            choice,
        ],
        [small.value("x", [1, WIDTH])],
        [small.value("y", [1, None if sizes[0] != sizes[1] else WIDTH]), small.value("z", [1, None])],
        [small.constant("w", weight), small.constant("zero", np.array(0, np.float32))],
    )


@pytest.mark.parametrize("rank", [0, 2])
def test_if(rank: int) -> None:
    before, rule = if_model(rank=rank), IfToWhere()
    after, done = rewritten(before, rule)
    assert [(a.rule, a.nodes) for a in done] == [("IfToWhere", ("if",))]
    feeds = [random_feeds(before, seed) for seed in range(4)]
    assert {bool(feed["x"].mean() > 0) for feed in feeds} == {True, False}
    assert_equivalent(before, after, feeds)
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, feeds) > 40


def test_an_if_of_two_sizes_stays() -> None:
    before, rule = if_model((WIDTH + 1, WIDTH)), IfToWhere()
    after, done = rewritten(before, rule)
    assert not done
    assert "two sizes" in rule.missed[0][1]
    assert "If" in {n.op_type for n in after.graph.node}
