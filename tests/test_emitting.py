"""The quantised model: its structure, its signature, and its results on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import small_models as small
from hexport.quantization.encoding import QType
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, plan_for
from hexport.quantization.wishes import read_wishes
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, cnn, normal, quantised, sqnr, transformer, workshop
from rule_checks import cpu, random_feeds

make = helper.make_node
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def chain(
    *nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), **constants: np.ndarray
) -> onnx.ModelProto:
    """x[1,4,8,8] → nodes → outputs, at an opset that has all types."""
    return small.model(
        list(nodes),
        [small.value("x", [1, 4, 8, 8])],
        [small.value(name, None) for name in outputs],
        [small.constant(name, array) for name, array in constants.items()],
        opset=21,
    )


def plan_of(shop: Workshop, scheme: str, **others: Precision) -> Plan:
    """The scheme for every node but these."""
    plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
    for name, precision in others.items():
        plan.set(name, precision, "for a test")
    return plan


class Graph:
    """Looking around in a quantised model."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.nodes = {node.name: node for node in proto.graph.node}
        self.makers = {name: node for node in proto.graph.node for name in node.output}
        self.arrays = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
        self.ops = Counter(node.op_type for node in proto.graph.node)

    def reads(self, name: str, index: int = 0) -> onnx.NodeProto:
        """What makes the input of a node."""
        return self.makers[self.nodes[name].input[index]]

    def way_back(self, name: str, index: int = 0) -> list[str]:
        """The operators from a node's input back to the first that is neither Q nor DQ."""
        found, node = [], self.makers.get(self.nodes[name].input[index])
        while node is not None and node.op_type in (QUANTIZE, DEQUANTIZE):
            found.append(node.op_type)
            node = self.makers.get(node.input[0])
        return found

    def type_of(self, pair: onnx.NodeProto) -> np.dtype:
        """The integers of a Q or DQ."""
        return self.arrays[pair.input[2]].dtype

    def scale_of(self, pair: onnx.NodeProto) -> np.ndarray:
        return self.arrays[pair.input[1]]


TWO_CONVS = chain(
    make("Conv", ["x", "w"], ["a"], name="first"),
    make("Conv", ["a", "w2"], ["y"], name="second"),
    w=normal(4, 4, 1, 1),
    w2=normal(4, 4, 1, 1, seed=1),
)
FAN_OUT = chain(
    make("Conv", ["x", "w"], ["a"], name="source"),
    make("Sigmoid", ["a"], ["y"], name="same"),
    make("Conv", ["a", "w2"], ["z"], name="other"),
    outputs=("y", "z"),
    w=normal(4, 4, 1, 1),
    w2=normal(4, 4, 1, 1, seed=1),
)


def test_every_border_has_its_pair(tmp_path: Path) -> None:
    graph = Graph(quantised(workshop(TWO_CONVS, tmp_path), "8a8w"))
    assert graph.way_back("first") == [DEQUANTIZE, QUANTIZE]
    assert graph.way_back("second") == [DEQUANTIZE, QUANTIZE]
    assert graph.type_of(graph.reads("first")) == np.uint8
    assert graph.type_of(graph.reads("first", 1)) == np.int8
    # x, a, y and the two weights; nothing twice.
    assert graph.ops == {"Conv": 2, QUANTIZE: 3, DEQUANTIZE: 5}
    assert "w" not in graph.arrays, "the float weights are gone"


@pytest.mark.parametrize("precision", [Precision(QType.U16, QType.S8), SCHEMES["8a8w"]])
def test_a_reader_in_another_type_has_a_pair_of_its_own(tmp_path: Path, precision: Precision) -> None:
    shop = workshop(FAN_OUT, tmp_path)
    scheme = "8a8w" if precision.activation is QType.U16 else "16a8w"
    proto = quantised(shop, plan_of(shop, scheme, other=precision))
    graph = Graph(proto)
    assert graph.way_back("same") == [DEQUANTIZE, QUANTIZE]
    assert graph.way_back("other") == [DEQUANTIZE, QUANTIZE, DEQUANTIZE, QUANTIZE]
    assert {graph.type_of(graph.reads(n)) for n in ("same", "other")} == {np.dtype("u1"), np.dtype("u2")}
    assert min(sqnr(FAN_OUT, proto, random_feeds(FAN_OUT))) > 30


def test_a_float_node_among_integers(tmp_path: Path) -> None:
    shop = workshop(FAN_OUT, tmp_path)
    proto = quantised(shop, plan_of(shop, "8a8w", other=FLOAT))
    graph = Graph(proto)
    assert graph.arrays[graph.nodes["other"].input[1]].dtype == np.float32
    assert graph.makers["z"].name == "other", "no pair behind it"
    assert {node.op_type for node in proto.graph.node if "w2" in node.input} == {"Conv"}


def test_float_nodes_beside_each_other_have_nothing_between(tmp_path: Path) -> None:
    shop = workshop(TWO_CONVS, tmp_path)
    graph = Graph(quantised(shop, plan_of(shop, "8a8w", first=FLOAT, second=FLOAT)))
    assert graph.ops == {"Conv": 2}
    graph = Graph(quantised(shop, plan_of(shop, "8a8w", first=FLOAT)))
    assert graph.ops == {"Conv": 2, QUANTIZE: 2, DEQUANTIZE: 3}
    assert graph.nodes["first"].input[0] == "x"


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w", "16a16w", "16a4w", "16a4w_block"])
@pytest.mark.parametrize(("made", "opset"), [(cnn, 17), (cnn, 21), (transformer, 21)])
def test_names_and_types_stay_and_the_results_are_close(
    tmp_path: Path, scheme: str, opset: int, made: Callable[[int], onnx.ModelProto]
) -> None:
    if scheme.endswith("block"):
        opset = 21
    proto = made(opset)
    result = quantised(workshop(proto, tmp_path), scheme)
    assert [v.name for v in result.graph.input] == [v.name for v in proto.graph.input]
    for before, after in zip(proto.graph.output, result.graph.output, strict=True):
        assert before == after
    least = {"8a8w": 22, "16a8w": 35, "16a16w": 45}.get(scheme, 10)
    assert min(sqnr(proto, result, random_feeds(proto, seed=1))) > least
    domains = {node.domain for node in result.graph.node if node.op_type in (QUANTIZE, DEQUANTIZE)}
    wide = scheme != "8a8w"
    assert ("com.microsoft" in domains) == (wide and opset < 21)


def test_an_output_that_is_read_inside_as_well(tmp_path: Path) -> None:
    proto = chain(
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("Relu", ["a"], ["y"], name="relu"),
        outputs=("a", "y"),
        w=normal(4, 4, 1, 1),
    )
    result = quantised(workshop(proto, tmp_path), "8a8w")
    assert [v.name for v in result.graph.output] == ["a", "y"]
    graph = Graph(result)
    assert "relu" in graph.nodes, "what cuts must not cut an output before it"
    conv, relu = cpu(result, random_feeds(proto))
    assert conv.min() < 0 <= relu.min()


def test_an_output_that_a_float_node_reads(tmp_path: Path) -> None:
    """As sentence encoders have it: the last states go out, and into a mean that stays fp16."""
    proto = chain(
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("Sigmoid", ["a"], ["y"], name="mean"),
        outputs=("a", "y"),
        w=normal(4, 4, 1, 1),
    )
    shop = workshop(proto, tmp_path)
    result = quantised(shop, plan_of(shop, "8a8w", mean=FLOAT))
    assert [v.name for v in result.graph.output] == ["a", "y"]
    assert min(sqnr(proto, result, random_feeds(proto))) > 25


def test_what_moves_numbers_has_one_encoding_throughout(tmp_path: Path) -> None:
    proto = chain(
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        make("Reshape", ["b", "shape"], ["c"], name="reshape"),
        make("Slice", ["c", "begin", "end"], ["d"], name="slice"),
        make("Sigmoid", ["d"], ["y"], name="sigmoid"),
        w=normal(4, 4, 1, 1),
        shape=np.array([4, -1]),
        begin=np.array([0]),
        end=np.array([1]),
    )
    graph = Graph(quantised(workshop(proto, tmp_path), "8a8w"))
    scales = {float(graph.scale_of(graph.reads(n))) for n in ("pool", "reshape", "slice", "sigmoid")}
    assert len(scales) == 1


def relu_after(*more: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    return chain(
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("Relu", ["a"], ["y"], name="relu"),
        *more,
        outputs=outputs,
        w=normal(4, 4, 1, 1),
    )


def test_relu_goes_into_the_encoding(tmp_path: Path) -> None:
    proto = relu_after()
    result = quantised(workshop(proto, tmp_path), "8a8w")
    graph = Graph(result)
    assert "relu" not in graph.nodes
    assert graph.arrays[graph.makers["y"].input[2]] == 0
    assert min(sqnr(proto, result, random_feeds(proto))) > 30


ELSEWHERE = {
    "another reader": relu_after(make("Sigmoid", ["a"], ["z"], name="s"), outputs=("y", "z")),
    "an output": relu_after(outputs=("a", "y")),
    "a bounded operator": chain(
        make("Tanh", ["x"], ["a"], name="conv"), make("Relu", ["a"], ["y"], name="relu")
    ),
    "an input": chain(make("Relu", ["x"], ["y"], name="relu")),
}


@pytest.mark.parametrize("why", ELSEWHERE)
def test_relu_stays_after(tmp_path: Path, why: str) -> None:
    assert "relu" in Graph(quantised(workshop(ELSEWHERE[why], tmp_path), "8a8w")).nodes


@pytest.mark.parametrize("name", ["conv", "relu"])
def test_relu_stays_beside_a_node_of_another_precision(tmp_path: Path, name: str) -> None:
    shop = workshop(relu_after(), tmp_path)
    weight = QType.S8 if name == "conv" else None
    for precision in (FLOAT, Precision(QType.U16, weight)):
        proto = quantised(shop, plan_of(shop, "8a8w", **{name: precision}))
        assert "relu" in Graph(proto).nodes
        assert cpu(proto, random_feeds(proto))[0].min() >= 0


def test_relu_stays_when_the_users_range_begins_below_zero(tmp_path: Path) -> None:
    shop = workshop(relu_after(), tmp_path)
    given = tmp_path / "o.json"
    given.write_text('{"tensors": {"y": {"low": -4.0, "high": 4.0}}}')
    shop.overrides.update(read_wishes(given, ()).tensors)
    assert cpu(quantised(shop, "8a8w"), random_feeds(relu_after()))[0].min() >= -1e-6


def test_weights_and_constants_that_are_shared_are_stored_once(tmp_path: Path) -> None:
    proto = chain(
        make("Conv", ["x", "w"], ["a"], name="first"),
        make("Conv", ["a", "w"], ["b"], name="second"),
        make("Mul", ["b", "half"], ["c"], name="mul"),
        make("Add", ["c", "half"], ["y"], name="add"),
        w=normal(4, 4, 1, 1),
        half=np.array(0.5, np.float32),
    )
    result = quantised(workshop(proto, tmp_path), "8a8w")
    graph = Graph(result)
    assert graph.reads("first", 1).input[0] == graph.reads("second", 1).input[0]
    assert graph.nodes["mul"].input[1] == graph.nodes["add"].input[1]
    assert min(sqnr(proto, result, random_feeds(proto))) > 30


def test_one_matrix_read_both_ways(tmp_path: Path) -> None:
    """Its channels are its columns for one node and its rows for the other."""
    matrix = normal(8, 8) * np.geomspace(0.1, 10, 8, dtype=np.float32)
    proto = chain(
        make("MatMul", ["x", "w"], ["a"], name="straight"),
        make("Reshape", ["a", "shape"], ["b"], name="reshape"),
        make("Gemm", ["b", "w"], ["y"], name="turned", transB=1),
        w=matrix,
        shape=np.array([-1, 8]),
    )
    assert min(sqnr(proto, quantised(workshop(proto, tmp_path), "16a8w"), random_feeds(proto))) > 30


def test_names_that_are_taken(tmp_path: Path) -> None:
    """Tensors of the model with the very names that the emitter would choose."""
    proto = chain(
        make("Conv", ["x", "conv_weight"], ["x_q_integers"], name="conv"),
        make("Sigmoid", ["x_q_integers"], ["x_scale"], name="x_q_QuantizeLinear"),
        make("Add", ["x_scale", "x_q_integers"], ["y_float"], name="add"),
        make("Tanh", ["y_float"], ["y"], name="tanh"),
        conv_weight=normal(4, 4, 1, 1),
    )
    result = quantised(workshop(proto, tmp_path), "8a8w")
    assert min(sqnr(proto, result, random_feeds(proto))) > 25


def test_what_a_subgraph_reads_from_outside(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        node = make(op, ["a"], [name], name=f"{name}_{op}")
        return helper.make_graph([node], name, [], [small.value(name, None)])

    nodes = [
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make(
            "If",
            ["choice"],
            ["y"],
            name="if",
            then_branch=branch("t", "Relu"),
            else_branch=branch("e", "Neg"),
        ),
    ]
    inputs = [small.value("x", [1, 4, 8, 8]), small.value("choice", [1], TensorProto.BOOL)]
    constants = [small.constant("w", normal(4, 4, 1, 1))]
    proto = small.model(nodes, inputs, [small.value("y", None)], constants, opset=21)
    result = quantised(workshop(proto, tmp_path), "8a8w")
    (chosen,) = (node for node in result.graph.node if node.op_type == "If")
    makers = Graph(result).makers
    for attribute in chosen.attribute:
        assert makers[attribute.g.node[0].input[0]].op_type == DEQUANTIZE
    feeds = random_feeds(proto)
    for choice in (True, False):
        assert min(sqnr(proto, result, {**feeds, "choice": np.array([choice])})) > 30


def test_constants_of_every_broadcast(tmp_path: Path) -> None:
    proto = chain(
        make("Add", ["x", "row"], ["a"], name="row"),
        make("Mul", ["a", "zero"], ["b"], name="nothing"),
        make("Sub", ["b", "one"], ["c"], name="constant_tensor"),
        make("Concat", ["c", "x", "more"], ["y"], name="concat", axis=1),
        row=normal(8),
        zero=np.array(0, np.float32),
        one=np.ones((1, 4, 1, 1), np.float32),
        more=normal(1, 2, 8, 8),
    )
    result = quantised(workshop(proto, tmp_path), "8a8w")
    assert min(sqnr(proto, result, random_feeds(proto))) > 30


def test_the_model_itself_is_not_touched(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    before = ir.to_proto(shop.model).SerializeToString(deterministic=True)
    one, other = (quantised(shop, "16a8w").SerializeToString(deterministic=True) for _ in range(2))
    assert ir.to_proto(shop.model).SerializeToString(deterministic=True) == before
    assert one == other
