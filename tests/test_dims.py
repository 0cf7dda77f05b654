"""Sizes for dynamic dims: from names and shapes, never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.errors import UsageError
from hexport.model.dims import DimsConflict, DimsNeeded, fix_shapes
from hexport.model.graph import Dim, Graph, TensorType


def graph(**inputs: tuple[Dim, ...] | None) -> Graph:
    return Graph((), {name: TensorType("float32", shape) for name, shape in inputs.items()}, {}, {})


def test_named_dims_are_shared_between_inputs() -> None:
    model = graph(ids=("batch", "seq"), mask=("batch", "seq"), fixed=(3,))
    assert fix_shapes(model, {"batch": 2, "seq": 64}, {}, "") == {
        "ids": (2, 64),
        "mask": (2, 64),
        "fixed": (3,),
    }


def test_scalars_need_nothing() -> None:
    assert fix_shapes(graph(sr=()), {}, {}, "") == {"sr": ()}


def test_missing_names_come_with_the_command() -> None:
    with pytest.raises(DimsNeeded) as caught:
        fix_shapes(graph(x=("batch", 3, "h")), {}, {}, "hexport check m.onnx")
    assert "x: float32[batch,3,h]" in caught.value.what
    assert caught.value.next.endswith("hexport check m.onnx --dim 'batch=1' --dim 'h=<size2>'")


def test_a_name_is_asked_for_once() -> None:
    with pytest.raises(DimsNeeded) as caught:
        fix_shapes(graph(x=("batch", "n"), state=(2, "batch", 128)), {}, {}, "go")
    assert caught.value.next.endswith("go --dim 'batch=1' --dim 'n=<size1>'")


@pytest.mark.parametrize("dim", [None, "?", "", " "])
def test_dims_without_a_name_need_the_shape(dim: Dim) -> None:
    with pytest.raises(DimsNeeded) as caught:
        fix_shapes(graph(x=(dim, 3)), {}, {}, "go")
    assert "--input-shape 'x=1,3'" in caught.value.next
    assert fix_shapes(graph(x=(dim, 3)), {}, {"x": (5, 3)}, "") == {"x": (5, 3)}


def test_question_marks_are_not_one_name() -> None:
    with pytest.raises(DimsConflict, match="no dim called"):
        fix_shapes(graph(x=("?", "?")), {"?": 4}, {}, "")


def test_unknown_rank_takes_any_shape() -> None:
    assert fix_shapes(graph(x=None), {}, {"x": (1, 2, 3)}, "") == {"x": (1, 2, 3)}
    with pytest.raises(DimsNeeded, match="dynamic dims"):
        fix_shapes(graph(x=None), {}, {}, "")


def test_contradictions() -> None:
    model = graph(x=("n", 3))
    with pytest.raises(DimsConflict, match="axis 1"):
        fix_shapes(model, {}, {"x": (1, 4)}, "")
    with pytest.raises(DimsConflict, match="axis 0"):
        fix_shapes(model, {"n": 2}, {"x": (1, 3)}, "")
    with pytest.raises(DimsConflict) as caught:
        fix_shapes(graph(image=("batch",)), {"bach": 1}, {}, "")
    assert "did you mean --dim batch=…?" in caught.value.next
    with pytest.raises(UsageError, match="1 or more"):
        fix_shapes(model, {"n": 0}, {}, "")


names = st.sampled_from(["n", "h", "w", "seq"])
shapes = st.lists(names | st.integers(1, 9), max_size=5).map(tuple)


@given(
    st.dictionaries(st.sampled_from("abcd"), shapes),
    st.fixed_dictionaries(dict.fromkeys(["n", "h", "w", "seq"], st.integers(1, 99))),
)
def test_all_names_given_means_all_fixed(inputs: dict[str, tuple[Dim, ...]], sizes: dict[str, int]) -> None:
    model = graph(**inputs)
    used = {dim: sizes[dim] for shape in inputs.values() for dim in shape if isinstance(dim, str)}
    fixed = fix_shapes(model, used, {}, "")
    expected = {k: tuple(sizes[d] if isinstance(d, str) else d for d in v) for k, v in inputs.items()}
    assert fixed == expected
    # and giving the same as whole shapes is the same
    assert fix_shapes(model, {}, expected, "") == expected
