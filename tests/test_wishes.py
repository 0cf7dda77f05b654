"""What the user settles: by name, operator or pattern, from the command line and from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport.errors import UsageError
from hexport.quantization.encoding import QType
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, plan_for
from hexport.quantization.wishes import Wishes, read_wishes
from hexport.rewrite.applying import infer_shapes
from quantised_graphs import ARCH, cnn, normal

BRACKET = "conv[0](x"
"""A name that is no pattern."""


def model() -> ir.Model:
    found = ir.from_proto(cnn())
    infer_shapes(found)
    return found


def settled(wishes: Wishes, scheme: str = "8a8w") -> Plan:
    loaded = model()
    plan = plan_for(loaded, SCHEMES[scheme], ARCH)
    wishes.apply(loaded, plan, ARCH)
    return plan


def written(folder: Path, document: Any) -> Path:
    path = folder / "o.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return path


@pytest.mark.parametrize(
    ("wish", "nodes"),
    [
        ("gemm", {"gemm"}),
        ("Conv", {"conv", "depthwise"}),
        (".*pool|gem.", {"pool", "gemm"}),
        ("(?i)CONV", {"conv"}),
        ("r2", {"clip"}),
        ("x", {"conv"}),
        ("w3", {"gemm"}),
    ],
)
def test_nodes_are_kept_float_by_name_operator_and_pattern(wish: str, nodes: set[str]) -> None:
    plan = settled(read_wishes(None, [wish]))
    assert {name for name, precision in plan.precisions.items() if precision == FLOAT} == nodes
    assert all(wish in plan.reasons[name] for name in nodes)


def test_a_name_need_not_be_a_pattern() -> None:
    proto = small.model(
        [
            helper.make_node("Relu", ["x"], ["a"], name="other"),
            helper.make_node("Relu", ["a"], ["y"], name=BRACKET),
        ],
        [small.value("x", [4])],
        [small.value("y", [4])],
    )
    loaded = ir.from_proto(proto)
    plan = plan_for(loaded, SCHEMES["8a8w"], ARCH)
    read_wishes(None, [BRACKET]).apply(loaded, plan, ARCH)
    assert plan.precisions == {"other": Precision(QType.U8), BRACKET: FLOAT}


@pytest.mark.parametrize("wish", ["nothing", "Conv.", "=gemm2"])
def test_a_wish_that_fits_no_node_is_refused(wish: str) -> None:
    with pytest.raises(UsageError, match="no node fits"):
        settled(read_wishes(None, [wish]))


def test_a_wish_that_is_neither_name_nor_pattern() -> None:
    with pytest.raises(UsageError, match="neither a name nor a pattern") as caught:
        settled(read_wishes(None, ["conv("]))
    assert caught.value.why


def test_an_override_sets_schemes_and_ranges(tmp_path: Path) -> None:
    document = {
        "nodes": {"Conv": "16a8w", "gemm": "16a4w", "average": "16a8w"},
        "tensors": {"r1": {"low": -1, "high": 2.5}},
    }
    wishes = read_wishes(written(tmp_path, document), ["relu"])
    assert set(wishes.tensors) == {"r1"}
    assert wishes.tensors["r1"][:2] == (-1.0, 2.5)
    plan = settled(wishes)
    assert plan.precisions["depthwise"] == SCHEMES["16a8w"]
    assert plan.precisions["gemm"] == SCHEMES["16a4w"]
    assert plan.precisions["average"] == Precision(QType.U16), "it has no weights"
    assert plan.precisions["relu"] == FLOAT
    assert plan.precisions["clip"] == Precision(QType.U8)


def test_a_quant_json_is_an_override(tmp_path: Path) -> None:
    """Its nodes are names and never patterns, and it has schemes without weights."""
    document = {
        "schema_version": 1,
        "recipe": "mse ranges",
        "cures": ["GruUnrolled"],
        "nodes": {
            "conv": {"op": "Conv", "scheme": "16a8w", "reason": "r"},
            "relu": {"op": "Relu", "scheme": "8a", "reason": "r"},
            "average": {"op": "GlobalAveragePool", "scheme": "16a", "reason": "r"},
            "gemm": {"op": "Gemm", "scheme": "fp16", "reason": "r"},
        },
        "tensors": {"r1": {"low": 0.0, "high": 1.0, "scale": 1 / 255, "zero_point": 0, "type": "u8"}},
    }
    wishes = read_wishes(written(tmp_path, document), ())
    assert wishes.cures == ("GruUnrolled",)
    plan = settled(wishes)
    assert plan.precisions["conv"] == SCHEMES["16a8w"]
    assert plan.precisions["depthwise"] == SCHEMES["8a8w"]
    assert plan.precisions["relu"] == Precision(QType.U8)
    assert plan.precisions["average"] == Precision(QType.U16)
    assert plan.precisions["gemm"] == FLOAT
    document["nodes"] = {"con.": {"scheme": "fp16"}}
    with pytest.raises(UsageError, match=r"no node fits 'con\.'"):
        settled(read_wishes(written(tmp_path, document), ()))


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    wishes = read_wishes(written(tmp_path, {"nodes": {"conv": "16a8w"}}), ["conv"])
    assert settled(wishes).precisions["conv"] == FLOAT


BAD_FILES = {
    "not JSON": ("{", "cannot be read"),
    "a list": ([], "is not an override"),
    "nodes as a list": ({"nodes": ["conv"]}, "is not an override"),
    "an unknown part": ({"node": {}}, "unknown part 'node'"),
    "an unknown scheme": ({"nodes": {"conv": "9a9w"}}, "no scheme '9a9w'"),
    "a scheme that is a list": ({"nodes": {"conv": ["8a8w"]}}, "has no scheme"),
    "a scheme that is a number": ({"nodes": {"conv": 8}}, "no scheme 8"),
    "auto": ({"nodes": {"conv": "auto"}}, "no scheme 'auto'"),
    "a node without a scheme": ({"nodes": {"conv": {"op": "Conv"}}}, "no scheme None"),
    "a range without an end": ({"tensors": {"r1": {"low": 0}}}, "'r1' has no range"),
    "a range that is a word": ({"tensors": {"r1": {"low": "a", "high": 1}}}, "'r1' has no range"),
    "a range that is text": ({"tensors": {"r1": "12"}}, "'r1' has no range"),
    "an empty range": ({"tensors": {"r1": {"low": 1, "high": 1}}}, "is empty"),
    "a range the wrong way round": ({"tensors": {"r1": {"low": 2, "high": 1}}}, "is empty"),
    "an infinite range": ('{"tensors": {"r1": {"low": 0, "high": Infinity}}}', "not of float32"),
    "a range of NaN": ('{"tensors": {"r1": {"low": NaN, "high": 1}}}', "not of float32"),
    "an unknown recipe": ({"recipe": "mse ranges, magic"}, "no recipe 'mse ranges, magic'"),
    "a recipe that is a list": ({"recipe": ["mse ranges"]}, "no recipe"),
    "a cure that is a word": ({"cures": "GruUnrolled"}, "no list of names"),
    "a range beyond float32": ({"tensors": {"r1": {"low": 0, "high": 1e300}}}, "not of float32"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, what: str) -> None:
    document, says = BAD_FILES[what]
    path = written(tmp_path, document)
    with pytest.raises(UsageError, match=says) as caught:
        read_wishes(path, ())
    assert str(path) in caught.value.what


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_wishes(tmp_path / "none.json", ())


def test_a_range_of_no_tensor_is_refused(tmp_path: Path) -> None:
    wishes = read_wishes(written(tmp_path, {"tensors": {"r9": {"low": 0, "high": 1}}}), ())
    with pytest.raises(UsageError, match="no tensor 'r9'"):
        settled(wishes)


def with_log() -> ir.Model:
    """A Log, which is wrong at 16 bits, and an Erf, which has no integers at all."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Erf", ["a"], ["b"], name="erf"),
        helper.make_node("Log", ["b"], ["y"], name="log"),
    ]
    proto = small.model(
        nodes, [small.value("x", [4, 4])], [small.value("y", [4, 4])], [small.constant("w", normal(4, 4))]
    )
    found = ir.from_proto(proto)
    infer_shapes(found)
    return found


@pytest.mark.parametrize(("node", "scheme"), [("erf", "8a8w"), ("log", "16a8w")])
def test_what_an_operator_cannot_be_is_refused(tmp_path: Path, node: str, scheme: str) -> None:
    loaded = with_log()
    plan = plan_for(loaded, SCHEMES["8a8w"], ARCH)
    with pytest.raises(UsageError, match=f"`{node}` cannot be {scheme}") as caught:
        read_wishes(written(tmp_path, {"nodes": {node: scheme}}), ()).apply(loaded, plan, ARCH)
    assert caught.value.why


def test_a_pattern_passes_over_what_cannot_have_the_scheme(tmp_path: Path) -> None:
    loaded = with_log()
    plan = plan_for(loaded, SCHEMES["8a8w"], ARCH)
    read_wishes(written(tmp_path, {"nodes": {".*": "16a8w"}}), ()).apply(loaded, plan, ARCH)
    assert plan.precisions["first"] == SCHEMES["16a8w"]
    assert plan.precisions["erf"] == FLOAT
    assert plan.precisions["log"] == Precision(QType.U8)
