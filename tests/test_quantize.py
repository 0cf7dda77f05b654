"""``quantize`` as a whole, on models that were prepared before, with the real simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

import small_models as small
from hexport.errors import HexportError, UsageError
from hexport.model.labels import PREPARED
from hexport.quantization.outcome import Quantization
from hexport.quantization.plan import SCHEMES
from hexport.quantization.verb import quantize
from hexport.quantization.view import show
from quantised_graphs import cnn, normal, sqnr, transformer
from rule_checks import TARGET, random_feeds

make = helper.make_node


def labelled(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As if `prepare` had made it."""
    helper.set_model_props(proto, {PREPARED: "test"})
    return proto


def calibration(proto: onnx.ModelProto, folder: Path, count: int = 8) -> str:
    samples = [random_feeds(proto, seed) for seed in range(count)]
    path = folder / f"calib{count}.npz"
    arrays: dict[str, Any] = {name: np.stack([np.asarray(s[name]) for s in samples]) for name in samples[0]}
    np.savez(path, **arrays)
    return str(path)


def done(
    proto: onnx.ModelProto, folder: Path, *, count: int = 8, name: str = "out", **options: Any
) -> Quantization:
    path = small.save(labelled(proto), folder / "m.onnx")
    settings: dict[str, Any] = {
        "target": TARGET,
        "scheme": "8a8w",
        "effort": "fast",
        "calib": calibration(proto, folder, count),
    }
    return quantize(path, output=folder / f"{name}.onnx", **{**settings, **options})


def decisions(folder: Path, name: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.quant.json").read_text("utf-8"))
    return found


def bytes_of(folder: Path, name: str) -> tuple[bytes, bytes]:
    return (folder / f"{name}.onnx").read_bytes(), (folder / f"{name}.quant.json").read_bytes()


LEAST = {"fp16": 55, "8a8w": 25, "16a8w": 35, "16a16w": 45, "16a4w": 12, "16a4w_block": 12}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme(tmp_path: Path, scheme: str) -> None:
    # Blocks came with opset 21, and the NPU takes them of matrices.
    proto = transformer(21) if scheme.endswith("block") else cnn(17)
    result = done(proto, tmp_path, scheme=scheme, effort="normal")
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written)
    assert [v.name for v in written.graph.output] == ["y"]
    assert result.met
    assert not result.best.failure
    assert result.best.sqnr_db > LEAST[scheme]
    assert result.best.verdict is not None
    assert not result.best.verdict.cpu_nodes
    # The file is the model that was measured.
    assert min(sqnr(proto, written, random_feeds(proto, 3))) > LEAST[scheme]
    if scheme != "fp16":
        assert Counter(n["scheme"] for n in decisions(tmp_path)["nodes"].values())[scheme] == (
            5 if scheme.endswith("block") else 3
        )
        assert result.bytes_after < result.bytes_before * 4


def test_what_is_told_of_the_npu_is_of_all_samples_there_are(tmp_path: Path) -> None:
    result = done(cnn(17), tmp_path, effort="normal", min_sqnr=15.0)
    # Two of eight are held out; the six others cost a model of this size nothing.
    assert result.to_json()["all_samples"] == result.best.wide_samples == 8
    assert result.best.wide is not None
    assert result.best.wide.lowest_db <= result.best.sqnr_db


def test_blocks_bring_an_older_model_to_opset_21(tmp_path: Path) -> None:
    proto = transformer(20)
    result = done(proto, tmp_path, scheme="16a4w_block", effort="normal")
    written = onnx.load(tmp_path / "out.onnx")
    assert {entry.domain: entry.version for entry in written.opset_import}[""] == 21
    assert any(a.name == "block_size" for node in written.graph.node for a in node.attribute)
    assert result.best.sqnr_db > LEAST["16a4w_block"]


def test_the_fast_effort_does_not_ask_the_npu_unless_a_goal_is_set(tmp_path: Path) -> None:
    fast = done(cnn(17), tmp_path)
    assert fast.best.npu is None
    assert any("on the CPU only" in warning for warning in fast.warnings)
    judged = done(cnn(17), tmp_path, min_sqnr=20.0)
    assert judged.best.npu is not None
    assert not any("on the CPU only" in warning for warning in judged.warnings)


def test_auto_takes_the_cheapest_that_is_exact_enough(tmp_path: Path) -> None:
    eight = done(cnn(17), tmp_path, scheme="auto", min_sqnr=20.0)
    assert (eight.met, eight.best.label) == (True, "8a8w")
    more = done(cnn(17), tmp_path, scheme="auto", min_sqnr=eight.best.sqnr_db + 10, effort="normal")
    assert more.met
    assert more.best.sqnr_db >= eight.best.sqnr_db + 10
    assert more.best.cost > eight.best.cost


@pytest.mark.parametrize("scheme", ["8a8w", "auto"])
def test_what_it_may_cost_is_said_first_and_is_not_exceeded(tmp_path: Path, scheme: str) -> None:
    """With a goal that nothing reaches, so that all is tried."""
    said: list[str] = []
    done(cnn(17), tmp_path, scheme=scheme, effort="normal", min_sqnr=200.0, say=said.append)
    left = [int(line.split("at most ")[1].split()[0]) for line in said if "at most " in line]
    assert said[0].startswith("at most ")
    assert left[0] == max(left) >= 10
    assert left == list(range(left[0], left[0] - len(left), -1)), "each step is one of them"
    assert sum("nearly done" in line for line in said) <= (scheme == "auto") * 2, "fp16 comes last"


def test_a_goal_out_of_reach_is_not_met_and_the_model_is_written(tmp_path: Path) -> None:
    result = done(cnn(17), tmp_path, min_sqnr=200.0)
    assert not result.met
    assert (tmp_path / "out.onnx").exists()
    assert decisions(tmp_path)["nodes"]
    assert result.to_json()["met"] is False


@pytest.mark.parametrize(
    ("wish", "names"),
    [("gemm", {"gemm"}), ("Conv", {"conv", "depthwise"}), ("c.*|gemm", {"conv", "clip", "gemm"})],
)
def test_nodes_are_kept_float(tmp_path: Path, wish: str, names: set[str]) -> None:
    result = done(cnn(17), tmp_path, keep_float=[wish])
    found = {name for name, node in decisions(tmp_path)["nodes"].items() if node["scheme"] == "fp16"}
    # What only moves numbers goes with its neighbours.
    assert names <= found <= names | {"pool", "flatten"}
    assert names <= set(result.float_nodes)
    assert all(wish in result.float_nodes[name] for name in names)
    assert result.float_mac_share > 0


def test_a_wish_for_no_node_is_refused(tmp_path: Path) -> None:
    for scheme in ("8a8w", "fp16"):
        with pytest.raises(UsageError, match="no node fits 'nosuch'"):
            done(cnn(17), tmp_path, keep_float=["nosuch"], scheme=scheme)
    assert not (tmp_path / "out.onnx").exists()


def test_the_same_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        done(cnn(17), tmp_path, name=name, effort="normal")
    assert bytes_of(tmp_path, "one") == bytes_of(tmp_path, "two")


@pytest.mark.parametrize(
    ("made", "scheme", "effort", "goal"),
    [
        (cnn, "8a8w", "fast", None),
        # A product of two activations reads one of them in a type of its own.
        (transformer, "16a8w", "fast", None),
        # Several recipes, and nodes in fp16.
        (transformer, "8a8w", "normal", 39.0),
    ],
)
def test_its_decisions_given_back_give_the_same_model(
    tmp_path: Path, made: Callable[[int], onnx.ModelProto], scheme: str, effort: str, goal: float | None
) -> None:
    options: dict[str, Any] = {"scheme": scheme, "effort": effort, "min_sqnr": goal}
    done(made(21), tmp_path, name="one", keep_float=["gemm"] if made is cnn else [], **options)
    done(made(21), tmp_path, name="two", override=tmp_path / "one.quant.json", **options)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_a_range_given_is_the_range_written(tmp_path: Path) -> None:
    override = tmp_path / "o.json"
    override.write_text(json.dumps({"tensors": {"y": {"low": -9.0, "high": 3.75}}}))
    done(cnn(17), tmp_path, override=override)
    entry = decisions(tmp_path)["tensors"]["y"]
    assert entry["low"] == pytest.approx(-9.0, abs=entry["scale"])
    assert entry["high"] == pytest.approx(3.75, abs=entry["scale"])


@pytest.mark.parametrize("count", [1, 3])
def test_few_samples_serve_with_a_word_of_warning(tmp_path: Path, count: int) -> None:
    result = done(cnn(17), tmp_path, count=count)
    assert result.met
    assert any("too few" in warning for warning in result.warnings)


def test_without_calibration_data_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calibration data") as caught:
        done(cnn(17), tmp_path, calib=None)
    assert "--calib" in caught.value.next


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scheme": "8a7w"}, "no scheme '8a7w'"),
        ({"effort": "heroic"}, "no effort 'heroic'"),
        ({"output": Path("no", "such", "folder", "o.onnx")}, "no folder"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    path = small.save(labelled(cnn(17)), tmp_path / "m.onnx")
    with pytest.raises(UsageError) as caught:
        quantize(path, **{"output": tmp_path / "o.onnx", "target": TARGET, **options})
    assert says in str(caught.value)


def test_a_model_that_is_quantised_already_is_refused(tmp_path: Path) -> None:
    done(cnn(17), tmp_path)
    again = onnx.load(tmp_path / "out.onnx")
    with pytest.raises(HexportError, match="quantised already"):
        done(again, tmp_path, name="twice")


X = small.value("x", [1, 4, 8, 8])
ODD = {
    "one node": small.model([make("Relu", ["x"], ["y"], name="relu")], [X], [small.value("y", None)]),
    "no weights": small.model(
        [make("Sigmoid", ["x"], ["a"], name="s"), make("Mul", ["a", "x"], ["y"], name="m")],
        [X],
        [small.value("y", None)],
    ),
    "two outputs, one an input moved": small.model(
        [make("Relu", ["x"], ["y"], name="relu"), make("Transpose", ["x"], ["z"], name="turn")],
        [X],
        [small.value("y", None), small.value("z", None)],
    ),
    "a row of zeros": small.model(
        [make("Conv", ["x", "w", "b"], ["y"], name="conv")],
        [X],
        [small.value("y", None)],
        [small.constant("w", np.zeros((4, 4, 1, 1), np.float32)), small.constant("b", normal(4))],
    ),
    "a Gemm with a matrix for a bias": small.model(
        [make("Flatten", ["x"], ["f"], name="f", axis=2), make("Gemm", ["f", "w", "b"], ["y"], name="gemm")],
        [X],
        [small.value("y", None)],
        [small.constant("w", normal(64, 8)), small.constant("b", normal(4, 8))],
    ),
    "half precision": small.model(
        [make("Conv", ["x", "w"], ["y"], name="conv")],
        [small.value("x", [1, 4, 8, 8], TensorProto.FLOAT16)],
        [small.value("y", None, TensorProto.FLOAT16)],
        [small.constant("w", normal(4, 4, 1, 1).astype(np.float16))],
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_models_work(tmp_path: Path, what: str) -> None:
    result = done(ODD[what], tmp_path)
    assert result.met
    assert any(precision.activation is not None for precision in result.best.plan.precisions.values())
    assert result.best.sqnr_db > 25


NOT_FLOAT32 = {
    "integers only": small.model(
        [make("Add", ["x", "x"], ["y"], name="add")],
        [small.value("x", [64], TensorProto.INT64)],
        [small.value("y", [64], TensorProto.INT64)],
    ),
}


@pytest.mark.parametrize("what", NOT_FLOAT32)
def test_where_nothing_is_quantised_it_says_so(tmp_path: Path, what: str) -> None:
    """Either it refuses, or it says that no node is in integers; never a silent copy."""
    try:
        result = done(NOT_FLOAT32[what], tmp_path)
    except HexportError as error:
        assert error.why  # noqa: PT017 - both ways are right
    else:
        assert any("integers" in warning for warning in result.warnings)


def test_where_the_npu_takes_nothing_the_figures_of_the_cpu_are_not_taken_for_its_own(tmp_path: Path) -> None:
    result = done(ODD["one node"], tmp_path, scheme="fp16", effort="normal", target="QCM6490")
    assert result.best.sqnr_db > 100, "as exact as could be"
    assert not result.met
    document = result.to_json()
    assert document["met"] is False
    assert document["nodes"] == {"npu": 0, "cpu": len(cast(list[str], document["cpu_nodes"]))}
    printed = StringIO()
    show(result, Console(file=printed, width=200))
    assert "✗ the NPU takes nothing of it" in printed.getvalue()
    assert "✓" not in printed.getvalue()
    assert "integers only" in printed.getvalue(), "the reason, and what to do"


def test_why_much_is_in_fp16_is_the_reason_of_most_of_it(tmp_path: Path) -> None:
    refused = done(cnn(17), tmp_path, scheme="16a16w", target="SM8350")
    assert any("most of it for this: HTP v68 has no s16 weights" in warning for warning in refused.warnings)
    kept = done(cnn(17), tmp_path, keep_float=["Conv"])
    assert kept.float_mac_share > 0.99
    assert any("most of it for this: asked for by" in warning for warning in kept.warnings)


def test_a_loop_is_left_as_it_is(tmp_path: Path) -> None:
    body = helper.make_graph(
        [make("Add", ["sum", "step"], ["next"]), make("Identity", ["go"], ["on"])],
        "body",
        [
            small.value("i", [], TensorProto.INT64),
            small.value("go", [], TensorProto.BOOL),
            small.value("sum", None),
        ],
        [small.value("on", [], TensorProto.BOOL), small.value("next", [1, 4, 8, 8])],
        [small.constant("step", np.ones((1, 4, 1, 1), np.float32))],
    )
    nodes = [
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("Loop", ["three", "", "a"], ["b"], name="loop", body=body),
        make("Relu", ["b"], ["y"], name="relu"),
    ]
    constants = [small.constant("w", normal(4, 4, 1, 1)), small.constant("three", np.array(3))]
    proto = small.model(nodes, [X], [small.value("y", [1, 4, 8, 8])], constants)
    result = done(proto, tmp_path)
    assert result.met
    assert result.best.sqnr_db > 25
    assert "Loop" in result.float_nodes["loop"]
