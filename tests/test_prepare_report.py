"""The report of ``prepare``: decisions, ranges before and after, what remains, for people and programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from rich.console import Console

import small_models as small
from hexport.preparation import cleaning
from hexport.preparation.fp16_watch import LazyRanges, judge, sentences
from hexport.preparation.outcome import Preparation
from hexport.preparation.ranges import Danger, Finding
from hexport.preparation.verb import prepare
from hexport.preparation.view import show

SAMPLES = np.random.default_rng(0).uniform(0.5, 1, (2, 4, 64)).astype(np.float32)


def loud_and_dynamic() -> onnx.ModelProto:
    """x → ·10000 → ReduceSum, beyond fp16 → Sigmoid of a part; and a NonZero whose shape is not known."""
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["loud"], name="loud"),
        helper.make_node("ReduceSum", ["loud", "axes"], ["sum"], name="sum"),
        helper.make_node("Mul", ["sum", "tiny"], ["small"], name="soften"),
        helper.make_node("Sigmoid", ["small"], ["y"], name="decide"),
        helper.make_node("NonZero", ["x"], ["where"], name="where"),
    ]
    return small.model(
        nodes,
        [small.value("x", [4, 64])],
        [small.value("y", [4, 1]), small.value("where", [2, None], TensorProto.INT64)],
        [
            small.constant("factor", np.array(1e4, np.float32)),
            small.constant("tiny", np.array(1e-3, np.float32)),
            small.constant("axes", np.array([1])),
        ],
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Preparation:
    folder = tmp_path_factory.mktemp("report")
    path = small.save(loud_and_dynamic(), folder / "m.onnx")
    np.savez(folder / "c.npz", x=SAMPLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "STEPS", (("tidy", cleaning.tidy),))
        return prepare(path, output=folder / "out.onnx", target="SM8650", calib=folder / "c.npz")


def shown(result: Preparation) -> str:
    page = io.StringIO()
    show(result, Console(file=page, width=200))
    return page.getvalue()


def test_an_overflow_is_found_with_its_node(result: Preparation) -> None:
    (found,) = [d for d in result.dangers if d.danger == "overflow" and not d.cured]
    assert (found.tensor, found.op, found.node) == ("sum", "ReduceSum", "sum")
    assert found.value == pytest.approx(1e4 * float(SAMPLES.sum(-1).max()), rel=1e-5)
    assert f"reaches {found.value:.3g} at {found.op} `{found.node}`, fp16 ends at 65504" in shown(result)


def test_what_remains_is_said_with_its_origin(result: Preparation) -> None:
    page = shown(result)
    assert not result.full
    assert "every node runs on the NPU" not in page
    assert "NonZero" in page
    assert "they begin at NonZero `where`" in page


def test_the_decision_stands_beside_the_decibels(result: Preparation) -> None:
    assert result.after.htp is not None
    by_name = {output.name: output for output in result.after.htp.outputs}
    assert by_name["y"].agreement is not None
    assert by_name["y"].agreement.by == "threshold"
    assert by_name["where"].agreement is None
    assert "same decision" in shown(result)


def test_json_is_json_with_all_of_it(result: Preparation) -> None:
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["data"] == ""
    assert {"agreement", "sqnr_db", "outputs", "verdict", "failure"} <= document["after"].keys()
    assert {entry["danger"] for entry in document["fp16"]} == {d.danger for d in result.dangers}
    assert all("agreement" in output for output in document["after"]["outputs"])
    assert document["pins"] == [vars(pin) for pin in result.pins]


def finding(danger: Danger, tensor: str) -> Finding:
    return Finding(danger, tensor, "Mul", f"node of {tensor}", 1e5)


def test_cured_moved_and_remaining_dangers() -> None:
    stays, moves, ends = (finding(Danger.OVERFLOW, name) for name in ("stays", "moves", "ends"))
    floor = finding(Danger.LOST_FLOOR, "floor")
    moved = finding(Danger.OVERFLOW, "moved")
    found = judge([stays, moves, ends, floor], [stays, moved])
    assert [(d.tensor, d.cured) for d in found] == [
        ("stays", False),
        ("moved", False),
        ("ends", True),
        ("floor", True),
    ]
    remaining, cured = sentences(found)
    assert "`stays`" in remaining
    assert "`moved`" in remaining
    assert "cured by the rules: overflow at Mul `node of ends`, lost floor at Mul `node of floor`" in cured


def test_many_dangers_are_one_short_line() -> None:
    (line,) = sentences(judge([], [finding(Danger.GIANT_CONSTANT, f"mask{i}") for i in range(9)]))
    assert line.endswith("; and 7 more")
    assert "mask2" not in line


class Bench:
    """What ranges are measured of, and how often that was done."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.limits, self.asked = folder, None, 0
        self._model = ir.from_proto(small.cut_by_erf())
        self.samples = [{"x": np.ones((4, 16), np.float32)}]

    @property
    def model(self) -> ir.Model:
        self.asked += 1
        return self._model


def test_ranges_are_measured_when_first_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ranges = LazyRanges(bench)  # type: ignore[arg-type]
    assert bench.asked == 0
    assert ranges.get("nothing") is None
    assert ranges["x"].high == 1.0
    assert set(ranges) == {"x", "a", "b", "c", "y"}
    assert bench.asked == 1
