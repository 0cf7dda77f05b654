"""Models that end by joining numbers of different size, with the real simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import small_models as small
from hexport import facts
from hexport.backend.running import run_on_htp
from hexport.quantization.mixed_ends import keep_mixed_ends
from hexport.quantization.plan import FLOAT, SCHEMES, plan_for, settle_moving
from operator_runs import decibels
from quantised_graphs import ARCH, normal, workshop
from rule_checks import TARGET, cpu, random_feeds
from test_quantize import decisions, done

make = helper.make_node
BOXES = 4


def detector(size: float, *after: onnx.NodeProto) -> onnx.ModelProto:
    """x[1,3,8,8] → Conv → boxes of about ``size``, scores by Sigmoid → Concat, and what comes after."""
    nodes = [
        make("Conv", ["x", "w"], ["a"], name="trunk"),
        make("Conv", ["a", "wb"], ["boxes"], name="boxes"),
        make("Conv", ["a", "ws"], ["logits"], name="scores"),
        make("Sigmoid", ["logits"], ["s"], name="sigmoid"),
        make("Concat", ["boxes", "s"], ["joined" if after else "y"], name="join", axis=1),
        *after,
    ]
    constants = [
        small.constant("w", normal(8, 3, 1, 1)),
        small.constant("wb", normal(BOXES, 8, 1, 1, seed=1, scale=size / 10)),
        small.constant("ws", normal(6, 8, 1, 1, seed=2, scale=0.5)),
        small.constant("shape", np.array([1, 10, 64])),
        small.constant("w2", normal(4, 10, 1, 1, seed=3)),
    ]
    return small.model(nodes, [small.value("x", [1, 3, 8, 8])], [small.value("y", None)], constants, opset=21)


def precision_of_join(proto: onnx.ModelProto, folder: Path) -> tuple[object, str]:
    shop = workshop(proto, folder)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    keep_mixed_ends(shop, plan)
    settle_moving(shop.model, plan)
    (join,) = (node for node in shop.model.graph if node.name == "join")
    return plan.of(join), plan.reasons.get("join", "")


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_small_numbers_beside_large_ones_are_right_on_the_npu(tmp_path: Path, scheme: str) -> None:
    proto = detector(400.0)
    result = done(proto, tmp_path, scheme=scheme, effort="normal")
    assert "the small ones" in result.float_nodes["join"]
    assert decisions(tmp_path)["nodes"]["join"]["scheme"] == "fp16"
    feeds = random_feeds(proto, 3)
    ran = run_on_htp(tmp_path / "out.onnx", [feeds], facts.find_target(TARGET))
    assert result.to_json()["cpu_nodes"] == []
    (exact,), got = cpu(proto, feeds), ran.outputs[0]["y"]
    assert decibels(exact[:, BOXES:], got[:, BOXES:]) > 30, "in the boxes' steps of 3 all scores are 0"
    assert decibels(exact[:, :BOXES], got[:, :BOXES]) > 30


@pytest.mark.parametrize(
    ("size", "after", "kept"),
    [
        (400.0, (), True),
        (400.0, (make("Reshape", ["joined", "shape"], ["y"], name="last"),), True),
        (1.0, (), False),
        (400.0, (make("Conv", ["joined", "w2"], ["y"], name="last"),), False),
    ],
    ids=["at the end", "moved on", "of like size", "read in integers"],
)
def test_which_are_kept(tmp_path: Path, size: float, after: tuple[onnx.NodeProto, ...], kept: bool) -> None:
    precision, reason = precision_of_join(detector(size, *after), tmp_path)
    assert (precision == FLOAT, bool(reason)) == (kept, kept)


@pytest.mark.parametrize("size", [400.0, 1.0])
def test_a_chip_without_float_is_told_of(tmp_path: Path, size: float) -> None:
    result = done(detector(size), tmp_path, target="QCM6490")
    said = [warning for warning in result.warnings if "the small ones lose their steps" in warning]
    assert len(said) == (size > 1)
    assert decisions(tmp_path)["nodes"]["join"]["scheme"] == "8a"


def test_a_wish_for_what_only_moves_numbers_is_heard(tmp_path: Path) -> None:
    """Where it would otherwise be as its neighbours are."""
    done(detector(1.0), tmp_path, keep_float=["join"])
    assert decisions(tmp_path)["nodes"]["join"]["scheme"] == "fp16"
    made = ir.load(tmp_path / "out.onnx")
    (join,) = (node for node in made.graph if node.op_type == "Concat")
    assert join.outputs[0].is_graph_output(), "nothing rounds it"
