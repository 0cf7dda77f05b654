"""The node that the NPU computes otherwise than the CPU, found with a judge whose NPU has a known fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx
import onnx_ir as ir
import pytest

from hexport import facts
from hexport.backend.failures import BackendError, CompileFailed
from hexport.quantization import reconciling
from hexport.quantization.judging import Judge
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, plan_for
from hexport.quantization.reconciling import find_misread
from hexport.quantization.work import all_macs
from hexport.quantization.workshop import Workshop
from hexport.toolchain import WorkerError
from quantised_graphs import ARCH, PLAIN, cnn, transformer, workshop
from rule_checks import TARGET

CPU_DB, TOLERANCE_DB = 30.0, 3.0


class FaultyNpu:
    """A judge whose CPU is always right, and whose NPU is not where one of ``faults`` is in integers."""

    def __init__(
        self, *faults: str, npu_db: float = 2.0, error: Callable[[], Exception] | None = None
    ) -> None:
        self.faults, self.npu_db, self.error = faults, npu_db, error
        self.target, self.executor = facts.find_target(TARGET), None
        self.samples: list[Any] = [{}]
        self.runs = 0

    def on_cpu(self, *models: ir.Model) -> list[Any]:
        return [SimpleNamespace(lowest_db=CPU_DB) for _ in models]

    def others(self, _: int) -> tuple[list[Any], list[Any]]:
        return [], []

    def on_npu(self, model: ir.Model, samples: int) -> tuple[None, Any, None]:
        assert samples == 1
        self.runs += 1
        wrong = any(in_integers(model, name) for name in self.faults)
        if wrong and self.error is not None:
            raise self.error()
        return None, SimpleNamespace(lowest_db=self.npu_db if wrong else CPU_DB), None


def in_integers(model: ir.Model, name: str) -> bool:
    """Whether the node reads straight from a DequantizeLinear; in float a Cast stands between."""
    node = next(node for node in model.graph if node.name == name)
    source = node.inputs[0]
    assert source is not None
    producer = source.producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def found_by(judge: FaultyNpu, shop: Workshop, plan: Plan) -> str | None:
    return find_misread(shop, cast(Judge, judge), plan, PLAIN, TOLERANCE_DB)


def whole(shop: Workshop) -> Plan:
    return plan_for(shop.model, SCHEMES["8a8w"], ARCH)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        *((cnn, name) for name in ("conv", "depthwise", "average", "gemm")),
        *((transformer, name) for name in ("norm1", "scores", "softmax", "up", "residual2")),
    ],
)
def test_the_node_is_found_wherever_it_is(
    tmp_path: Path, made: Callable[[], onnx.ModelProto], name: str
) -> None:
    shop = workshop(made(), tmp_path)
    judge = FaultyNpu(name)
    assert found_by(judge, shop, whole(shop)) == name
    # By halves, and not one after the other.
    assert judge.runs <= len(shop.model.graph).bit_length()


def test_of_two_the_first_is_found(tmp_path: Path) -> None:
    shop = workshop(transformer(), tmp_path)
    assert found_by(FaultyNpu("up", "softmax"), shop, whole(shop)) == "softmax"


def test_a_node_that_is_float_already_is_not_blamed(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    plan = whole(shop)
    plan.set("conv", FLOAT, "for a test")
    plan.set("relu", FLOAT, "for a test")
    assert found_by(FaultyNpu("conv", "gemm"), shop, plan) == "gemm"


def test_what_only_moves_numbers_is_not_blamed(tmp_path: Path) -> None:
    """The one that is blamed made what it moves."""
    shop = workshop(cnn(), tmp_path)
    assert found_by(FaultyNpu("flatten"), shop, whole(shop)) == "average"


@pytest.mark.parametrize("error", [BackendError, CompileFailed, WorkerError])
def test_a_node_that_makes_the_backend_fail_is_found_as_well(
    tmp_path: Path, error: type[WorkerError]
) -> None:
    shop = workshop(cnn(), tmp_path)
    judge = FaultyNpu("depthwise", error=lambda: error("it fails", why="for a test"))
    assert found_by(judge, shop, whole(shop)) == "depthwise"


def test_an_error_of_another_kind_is_not_taken_for_the_nodes(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    with pytest.raises(MemoryError):
        found_by(FaultyNpu("conv", error=MemoryError), shop, whole(shop))


def test_a_difference_within_the_tolerance_is_none(tmp_path: Path) -> None:
    """With nobody to blame the last one is, which the caller then measures."""
    shop = workshop(cnn(), tmp_path)
    slight = FaultyNpu("conv", npu_db=CPU_DB - TOLERANCE_DB + 0.1)
    assert found_by(slight, shop, whole(shop)) == "gemm"
    more = FaultyNpu("conv", npu_db=CPU_DB - TOLERANCE_DB - 0.1)
    assert found_by(more, shop, whole(shop)) == "conv"


def test_a_search_that_would_be_too_much_work_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a count of the model's work, and not by how fast this machine does it."""
    shop = workshop(transformer(), tmp_path)
    macs = all_macs(shop.model)
    once = sum(macs.values()) + len(macs) * reconciling._WORK_A_NODE
    judge = FaultyNpu("softmax")
    monkeypatch.setattr(reconciling, "_WORK", once)
    assert (found_by(judge, shop, whole(shop)), judge.runs) == (None, 0)
    monkeypatch.setattr(reconciling, "_WORK", once * len(macs).bit_length())
    assert found_by(judge, shop, whole(shop)) == "softmax"


def test_a_plan_without_integers_has_no_such_node(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    judge = FaultyNpu("conv")
    assert found_by(judge, shop, plan_for(shop.model, FLOAT, ARCH)) is None
    assert judge.runs == 0
