"""LSTM, GRU, RNN → steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import small_models as small
from hexport import zoo
from hexport.rewrite.faults.gru_unrolled import GruUnrolled
from hexport.rewrite.faults.lstm_unrolled import LstmUnrolled
from hexport.rewrite.recurrent import RecurrentUnrolled
from hexport.rewrite.support.rnn_unrolled import RnnUnrolled
from rule_checks import assert_equivalent, cpu, cpu_ops, htp_sqnr, random_feeds, rewritten

RULES: dict[str, type[RecurrentUnrolled]] = {"LSTM": LstmUnrolled, "GRU": GruUnrolled, "RNN": RnnUnrolled}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str,
    *,
    steps: int = 3,
    batch: int = 1,
    features: int = 4,
    hidden: int = 5,
    outputs: tuple[str, ...] | None = None,
    states: bool = False,
    peepholes: bool = False,
    lengths: list[int] | None = None,
    opset: int = 17,
    **attributes: Any,
) -> onnx.ModelProto:
    """One recurrent node with weights as a framework initialises them, its shapes in ONNX's own order."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rng, gates = np.random.default_rng(1), GATES[op]

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        bound = 1 / np.sqrt(hidden)
        return small.constant(name, rng.uniform(-bound, bound, (directions, *shape)).astype(np.float32))

    constants = [
        weights("W", gates * hidden, features),
        weights("R", gates * hidden, hidden),
        weights("B", 2 * gates * hidden),
    ]
    inputs, names = [small.value("X", [steps, batch, features])], ["X", "W", "R", "B", ""]
    if lengths is not None:
        names[4] = "lengths"
        constants.append(small.constant("lengths", np.array(lengths, np.int32)))
    for name in ("h", "c") if op == "LSTM" else ("h",):
        names.append(name if states else "")
        if states:
            inputs.append(small.value(name, [directions, batch, hidden]))
    if peepholes:
        names.append("P")
        constants.append(weights("P", 3 * hidden))
    made = outputs or (("Y", "Y_h", "Y_c") if op == "LSTM" else ("Y", "Y_h"))
    state = [directions, batch, hidden]
    shapes = {"Y": [steps, directions, batch, hidden], "Y_h": state, "Y_c": state}
    return small.model(
        [helper.make_node(op, names, made, name="layer", hidden_size=hidden, **attributes)],
        inputs,
        [small.value(name, list(shapes[name])) for name in made if name],
        constants,
        opset,
    )


def unrolled(before: onnx.ModelProto, op: str) -> onnx.ModelProto:
    rule = RULES[op]()
    after, done = rewritten(before, rule)
    assert [(a.rule, a.nodes) for a in done] == [(type(rule).__name__, ("layer",))]
    assert op not in {node.op_type for node in after.graph.node}
    return after


def assert_unrolled_right(before: onnx.ModelProto, op: str) -> None:
    after = unrolled(before, op)
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)])


@pytest.mark.parametrize("op", RULES)
def test_a_step_has_one_name_at_every_length(op: str) -> None:
    """By it two sizes of a model find the weights and ranges that they share."""

    def names(steps: int) -> list[tuple[str, str, str]]:
        made = unrolled(layer(op, steps=steps, direction="bidirectional"), op)
        return [(node.op_type, node.name, value) for node in made.graph.node for value in node.output]

    short, long = names(3), names(7)
    assert len({value for *_, value in long}) == len(long)
    assert set(short) < set(long)


FORMS: list[tuple[str, dict[str, Any]]] = [
    *((op, {"direction": way}) for op in RULES for way in ("forward", "reverse", "bidirectional")),
    *((op, {"direction": "bidirectional", "states": True, "batch": 2}) for op in RULES),
    *((op, {"clip": 0.3}) for op in RULES),
    *((op, {"lengths": [2, 2], "batch": 2, "direction": "bidirectional"}) for op in RULES),
    *((op, {"outputs": ("", "Y_h")}) for op in RULES),
    *((op, {"outputs": ("Y",), "opset": 11}) for op in RULES),
    *((op, {"steps": 1, "opset": 22}) for op in RULES),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "states": True}),
    ("GRU", {"activations": ["Sigmoid", "Relu"]}),
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Relu", "Tanh"], "direction": "bidirectional"}),
    ("LSTM", {"peepholes": True}),
    ("LSTM", {"peepholes": True, "states": True, "direction": "bidirectional"}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Relu"]}),
    ("LSTM", {"outputs": ("", "", "Y_c")}),
    ("LSTM", {"outputs": ("Y", "", "Y_c")}),
]


@pytest.mark.parametrize(("op", "form"), FORMS)
def test_equivalent(op: str, form: dict[str, Any]) -> None:
    assert_unrolled_right(layer(op, **form), op)


@given(
    st.sampled_from(list(RULES)),
    *(st.integers(1, 5) for _ in range(4)),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
)
@settings(max_examples=15, deadline=None)
def test_any_shape(op: str, steps: int, batch: int, features: int, hidden: int, direction: str) -> None:
    before = layer(
        op, steps=steps, batch=batch, features=features, hidden=hidden, direction=direction, states=True
    )
    assert_unrolled_right(before, op)


@pytest.mark.parametrize("op", RULES)
def test_batch_first(op: str) -> None:
    """ONNX Runtime does not run layout 1: the reference is layout 0 on turned inputs."""
    options: dict[str, Any] = {"batch": 2, "states": True, "direction": "bidirectional"}
    reference, before = layer(op, **options), layer(op, layout=1, **options)
    for value in (*before.graph.input, *before.graph.output):
        dims = value.type.tensor_type.shape.dim
        turned = [dims[i].dim_value for i in ((2, 0, 1, 3) if len(dims) == 4 else (1, 0, 2))]
        for dim, size in zip(dims, turned, strict=True):
            dim.dim_value = size
    after = unrolled(before, op)
    feeds = random_feeds(reference)
    found = cpu(after, {name: array.transpose(1, 0, 2) for name, array in feeds.items()})
    for expected, got in zip(cpu(reference, feeds), found, strict=True):
        turned_back = got.transpose((1, 2, 0, 3) if got.ndim == 4 else (1, 0, 2))
        np.testing.assert_allclose(turned_back, expected, rtol=1e-5, atol=1e-6)


def test_two_layers_in_a_row_keep_their_constants_apart() -> None:
    first, second = layer("RNN", features=5, outputs=("Y",)), layer("RNN", features=5, outputs=("Y",))
    nodes = [*first.graph.node, *second.graph.node]
    nodes[0].output[0], nodes[0].name = "between", "layer_0"
    nodes[1].input[0], nodes[1].input[1] = "sequence", "W2"
    constants = [
        *first.graph.initializer,
        small.constant("W2", np.full((1, 5, 5), 0.1, np.float32)),
        small.constant("shape", np.array([3, 1, 5])),
    ]
    nodes.insert(1, helper.make_node("Reshape", ["between", "shape"], ["sequence"]))
    before = small.model(nodes, list(first.graph.input), list(second.graph.output), constants)
    after, done = rewritten(before, RnnUnrolled())
    assert [a.nodes for a in done] == [("layer_0", "layer")]
    assert_equivalent(before, after, [random_feeds(before)])


def weight_as_input(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    (tensor,) = (t for t in model.graph.initializer if t.name == name)
    model.graph.initializer.remove(tensor)
    model.graph.input.append(small.value(name, list(tensor.dims), tensor.data_type))
    return model


def dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "length"
    return model


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (lambda: layer("LSTM", steps=257, outputs=("Y",)), "257 steps are more than 256"),
        (lambda: layer("GRU", activations=["Sigmoid", "Softsign"]), "Softsign is none of"),
        (lambda: layer("RNN", lengths=[3, 2], batch=2), "differ in length"),
        (lambda: weight_as_input(layer("RNN", lengths=[3]), "lengths"), "lengths of the sequences are not"),
        (lambda: weight_as_input(layer("LSTM"), "W"), "W is not constant"),
        (lambda: weight_as_input(layer("GRU"), "B"), "B is not constant"),
        (lambda: dynamic(layer("RNN", outputs=("Y",))), "shape of the input is not fixed"),
    ],
)
def test_says_why_not(before: Any, reason: str) -> None:
    model = before()
    rule = RULES[model.graph.node[0].op_type]()
    _, done = rewritten(model, rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "layer"
    assert reason in why


def test_the_compilers_lstm_is_imprecise_and_the_steps_are_not() -> None:
    before = layer("LSTM", steps=16, features=32, hidden=32, outputs=("Y",))
    after, feeds = unrolled(before, "LSTM"), [random_feeds(before, seed) for seed in range(3)]
    assert not cpu_ops(before)
    assert not cpu_ops(after)
    assert htp_sqnr(before, before, feeds) < 45
    assert htp_sqnr(before, after, feeds) > 55


@pytest.mark.parametrize(
    ("op", "form"), [("RNN", {}), ("GRU", {"activations": ["Sigmoid", "Relu"]}), ("GRU", {"clip": 0.5})]
)
def test_what_the_backend_refused_runs_on_the_npu(op: str, form: dict[str, Any]) -> None:
    before = layer(op, steps=8, features=32, hidden=32, outputs=("Y",), **form)
    after = unrolled(before, op)
    assert op in cpu_ops(before)
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before, seed) for seed in range(3)]) > 55


@pytest.mark.parametrize("reset_after", [0, 1])
def test_gru_steps_are_exact(reset_after: int) -> None:
    before = layer("GRU", steps=8, features=32, hidden=32, outputs=("Y",), linear_before_reset=reset_after)
    after = unrolled(before, "GRU")
    assert htp_sqnr(before, after, [random_feeds(before, seed) for seed in range(3)]) > 55


def test_the_lstm_of_a_real_model_on_its_real_inputs() -> None:
    """Cut out of silero-vad-v6, whose front end has faults of its own."""
    name = "silero-vad-v6"
    whole = onnx.load(str(zoo.get(name)))
    for value in whole.graph.input:
        for dim, size in zip(
            value.type.tensor_type.shape.dim, zoo.entry(name).input_shapes[value.name], strict=True
        ):
            dim.dim_value = size
    (node,) = (n for n in whole.graph.node if n.op_type == "LSTM")
    node.name = "layer"
    whole = onnx.shape_inference.infer_shapes(whole)
    before = onnx.utils.Extractor(whole).extract_model([node.input[0], "h", "c"], list(node.output))
    front = onnx.utils.Extractor(whole).extract_model(["input"], [node.input[0]])
    feeds = [
        {node.input[0]: cpu(front, {"input": sample["input"]})[0], "h": sample["h"], "c": sample["c"]}
        for sample in zoo.inputs(name, count=3, split="test")
    ]
    after = unrolled(before, "LSTM")
    assert_equivalent(before, after, feeds, atol=1e-5)
    assert htp_sqnr(before, before, feeds) < 40
    assert htp_sqnr(before, after, feeds) > 50
