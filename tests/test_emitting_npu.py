"""The quantised model on the simulator: every node on the NPU, in integers, and as exact as on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import small_models as small
from hexport import facts
from hexport.backend.failures import CompileFailed, RunFailed
from hexport.observe.check import check_and_run
from hexport.quantization import emitting
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, plan_for
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, cnn, normal, quantised, transformer, workshop
from rule_checks import TARGET, cpu
from small_models import save
from step_models import graph


def on_npu(shop: Workshop, plan: Plan | str, folder: Path) -> tuple[list[str], float, float]:
    """Nodes on the CPU, and the SQNR against the same model on the CPU and against the float one."""
    proto = quantised(shop, plan)
    (feeds, *_) = shop.data
    verdict, (outputs,) = check_and_run(save(proto, folder / "m.onnx"), facts.find_target(TARGET), [feeds])
    (got,) = outputs.values()
    (same,) = cpu(proto, feeds)
    (exact,) = cpu(onnx.load(folder / "float.onnx"), feeds)
    return [node.name for node in verdict.cpu_nodes], decibels(same, got), decibels(exact, got)


def mixed_on_npu(
    made: onnx.ModelProto, scheme: str, others: Mapping[str, Precision], folder: Path
) -> tuple[list[str], float, float]:
    """The same of a model in that scheme but for some nodes."""
    save(made, folder / "float.onnx")
    shop = workshop(made, folder)
    plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
    for name, precision in others.items():
        plan.set(name, precision, "for a test")
    return on_npu(shop, plan, folder)


def decibels(reference: np.ndarray, result: np.ndarray) -> float:
    noise = np.sum((result.astype(np.float64) - reference) ** 2)
    return float(10 * np.log10(np.sum(reference.astype(np.float64) ** 2) / noise)) if noise else np.inf


@pytest.mark.parametrize(
    ("scheme", "as_the_cpu", "as_float"),
    [("8a8w", 28, 22), ("16a8w", 40, 30), ("16a16w", 40, 30), ("16a4w", 40, 10)],
)
@pytest.mark.parametrize("made", [cnn, transformer])
def test_every_node_is_on_the_npu(
    tmp_path: Path, made: Callable[[], onnx.ModelProto], scheme: str, as_the_cpu: float, as_float: float
) -> None:
    save(made(), tmp_path / "float.onnx")
    cpu_nodes, same, close = on_npu(workshop(made(), tmp_path), scheme, tmp_path)
    assert cpu_nodes == []
    assert same > as_the_cpu
    assert close > as_float


def test_a_mixed_model_is_on_the_npu(tmp_path: Path) -> None:
    """Eight bits, sixteen bits and fp16 beside each other; a border costs no node on the CPU."""
    layer = SCHEMES["16a8w"]
    sixteen = Precision(layer.activation)
    others = {"gemm": layer, "average": sixteen, "flatten": sixteen, "depthwise": FLOAT, "clip": FLOAT}
    cpu_nodes, same, close = mixed_on_npu(cnn(), "8a8w", others, tmp_path)
    assert cpu_nodes == []
    assert same > 28
    assert close > 22


@pytest.mark.parametrize("layer", ["16a8w", "8a8w"])
def test_a_product_with_its_own_sigmoid_is_right_at_every_height(tmp_path: Path, layer: str) -> None:
    """Ten rows are what a YOLO for 320 pixels ends in; also where the 16 bits begin only behind the layer."""
    made = small.model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", ["a"], ["s"], name="sigmoid"),
            helper.make_node("Mul", ["a", "s"], ["m"], name="mul"),
            helper.make_node("Conv", ["m", "w2"], ["y"], name="last"),
        ],
        [small.value("x", [1, 16, 10, 10])],
        [small.value("y", None)],
        [small.constant("w", normal(16, 16, 3, 3)), small.constant("w2", normal(16, 16, 1, 1))],
        opset=21,
    )
    cpu_nodes, same, _ = mixed_on_npu(made, "16a8w", {"conv": SCHEMES[layer]}, tmp_path)
    assert cpu_nodes == []
    assert same > 40


def test_small_probabilities_of_a_sigmoid_in_fp16_are_right(tmp_path: Path) -> None:
    """Between integers, at the end: the HTP's own Sigmoid in fp16 is good for 8 bits of 0 to 1."""
    made = small.model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
            helper.make_node("Conv", ["a", "w2", "b"], ["c"], name="last"),
            helper.make_node("Sigmoid", ["c"], ["y"], name="sigmoid"),
        ],
        [small.value("x", [1, 8, 16, 16])],
        [small.value("y", None)],
        [
            small.constant("w", normal(16, 8, 1, 1)),
            small.constant("w2", normal(4, 16, 1, 1, scale=0.05)),
            small.constant("b", np.full(4, -6, np.float32)),
        ],
    )
    cpu_nodes, same, close = mixed_on_npu(made, "16a8w", {"last": FLOAT, "sigmoid": FLOAT}, tmp_path)
    assert cpu_nodes == []
    assert same > 40
    assert close > 35


def split_input() -> onnx.ModelProto:
    return graph([1, 4, 8, 8], "c = Conv x w", "t = Tanh x", "y = Add c t", w=normal(4, 4, 1, 1, scale=0.3))


@pytest.mark.parametrize(("scheme", "as_float"), [("8a8w", 25), ("16a8w", 40)])
def test_an_input_read_in_integers_and_in_float(tmp_path: Path, scheme: str, as_float: float) -> None:
    cpu_nodes, same, close = mixed_on_npu(split_input(), scheme, {"t": FLOAT}, tmp_path)
    assert cpu_nodes == []
    assert same > 28
    assert close > as_float


def test_without_casts_such_an_input_cannot_be_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the provider was mended: the rule input-in-one-form can go."""
    monkeypatch.setattr(emitting, "feed_split_inputs", lambda _: None)
    with pytest.raises((CompileFailed, RunFailed), match=r"1002|6004"):
        mixed_on_npu(split_input(), "8a8w", {"t": FLOAT}, tmp_path)


@pytest.mark.parametrize("others", [{}, {"c": FLOAT, "t": FLOAT}], ids=["in integers", "in float"])
def test_an_input_read_in_one_form_has_no_casts(tmp_path: Path, others: dict[str, Precision]) -> None:
    shop = workshop(split_input(), tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    for name, precision in others.items():
        plan.set(name, precision, "for a test")
    readers = [node.op_type for node in quantised(shop, plan).graph.node if "x" in node.input]
    assert readers == (["Conv", "Tanh"] if others else ["QuantizeLinear"])
