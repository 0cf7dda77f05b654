"""A Split with more outputs than ONNX's inference is shown the sizes of."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.values import fixed_shape

WIDTH = 3


@pytest.mark.parametrize("count", [2, 200])
def test_what_follows_a_split_has_a_shape(count: int) -> None:
    """Also behind the second one, whose own input is only known when the first one's outputs are."""
    sizes = np.arange(count) % 3 + 1
    first, second = ([f"{part}{i}" for i in range(count)] for part in "ab")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Split", ["r", "sizes"], first, axis=0),
        helper.make_node("Concat", first, ["joined"], axis=0),
        helper.make_node("Split", ["joined", "sizes"], second, axis=0),
        helper.make_node("Neg", [second[-1]], ["y"]),
    ]
    rows, last = int(sizes.sum()), int(sizes[-1])
    model = ir.from_proto(
        small.model(
            nodes,
            [small.value("x", [rows, WIDTH])],
            [small.value("y", [last, WIDTH])],
            [small.constant("sizes", sizes)],
        )
    )
    infer_shapes(model)
    shapes = {str(value.name): fixed_shape(value) for node in model.graph for value in node.outputs}
    for names in (first, second):
        assert [shapes[name] for name in names] == [(int(size), WIDTH) for size in sizes]
    assert shapes["joined"] == (rows, WIDTH)


def test_sizes_that_nobody_knows_end_it() -> None:
    nodes = [helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=0)]
    inputs = [small.value("x", [4, WIDTH]), small.value("sizes", [2], 7)]
    model = ir.from_proto(small.model(nodes, inputs, [small.value("a", ["n", WIDTH])]))
    infer_shapes(model)
    assert fixed_shape(model.graph.node(0).outputs[1]) is None
