"""The quantised model on the simulator: every node on the NPU, in integers, and as exact as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from hexport import facts
from hexport.observe.check import check_and_run
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, plan_for
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, cnn, quantised, transformer, workshop
from rule_checks import TARGET, cpu
from small_models import save


def on_npu(shop: Workshop, plan: Plan | str, folder: Path) -> tuple[list[str], float, float]:
    """Nodes on the CPU, and the SQNR against the same model on the CPU and against the float one."""
    proto = quantised(shop, plan)
    (feeds, *_) = shop.data
    verdict, (outputs,) = check_and_run(save(proto, folder / "m.onnx"), facts.find_target(TARGET), [feeds])
    (got,) = outputs.values()
    (same,) = cpu(proto, feeds)
    (exact,) = cpu(onnx.load(folder / "float.onnx"), feeds)
    return [node.name for node in verdict.cpu_nodes], decibels(same, got), decibels(exact, got)


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
    save(cnn(), tmp_path / "float.onnx")
    shop = workshop(cnn(), tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    sixteen = SCHEMES["16a8w"]
    plan.set("gemm", sixteen, "for a test")
    plan.set("average", Precision(sixteen.activation), "for a test")
    plan.set("flatten", Precision(sixteen.activation), "for a test")
    plan.set("depthwise", FLOAT, "for a test")
    plan.set("clip", FLOAT, "for a test")
    cpu_nodes, same, close = on_npu(shop, plan, tmp_path)
    assert cpu_nodes == []
    assert same > 28
    assert close > 22
