"""A cure that one size of a model needed is kept at another, so that the two can share their weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest

from hexport import facts
from hexport.backend.running import run_on_cpu
from hexport.errors import UsageError
from hexport.preparation import cleaning, pipeline
from hexport.preparation.verb import prepare
from hexport.preparation.workbench import Workbench
from hexport.rewrite.catalogue import select_rules
from hexport.toolchain import Limits
from test_rules_recurrent import layer

CURE = "GruUnrolled"


def standing(quality: float, *, on_cpu: int = 0) -> pipeline.Standing:
    """A backend that takes the model at once, so that no cure saves minutes."""
    verdict = SimpleNamespace(cpu_nodes=(None,) * on_cpu, partitions=(None,), compile_seconds=1.0)
    return pipeline.Standing(verdict, None, SimpleNamespace(sqnr_db=quality))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setattr(cleaning, "STEPS", ())
    model = ir.from_proto(layer("GRU", linear_before_reset=1))
    ir.save(model, tmp_path / "m.onnx")
    samples = [{"X": np.random.default_rng(0).standard_normal((3, 1, 4)).astype(np.float32)}]
    reference = run_on_cpu(tmp_path / "m.onnx", samples).outputs
    return Workbench(model, facts.find_target("SM8650"), tmp_path, samples, reference, Limits())


def clean(
    bench: Workbench, with_cure: pipeline.Standing, cures: tuple[str, ...], patch: pytest.MonkeyPatch
) -> bool:
    """Whether the cure was kept on a backend that says ``with_cure`` of the model that has it."""
    before = standing(58.0)
    patch.setattr(pipeline, "stand", lambda _bench, model: before if has_gru(model) else with_cure)
    after = pipeline.clean(bench, select_rules(None), before, cures)
    kept = CURE in {attempt.name for attempt in bench.attempts if attempt.kept}
    assert kept is not has_gru(bench.model)
    assert after is (with_cure if kept else before)
    return kept


def has_gru(model: ir.Model) -> bool:
    return any(node.op_type == "GRU" for node in model.graph)


def test_by_itself_it_has_to_win(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not clean(bench, standing(51.0), (), monkeypatch)


def test_what_another_size_has_need_not_win(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clean(bench, standing(51.0), (CURE,), monkeypatch)


def test_a_cure_that_no_rule_is_called_by_is_refused(tmp_path: Path) -> None:
    ir.save(ir.from_proto(layer("GRU")), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="no rule 'GruUnrolledd'"):
        prepare(
            tmp_path / "m.onnx", output=tmp_path / "out.onnx", target="SM8650", cures=[CURE, "GruUnrolledd"]
        )
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("harm", [standing(35.0), standing(58.0, on_cpu=1)], ids=["too coarse", "on the CPU"])
def test_but_it_must_not_harm(
    harm: pipeline.Standing, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not clean(bench, harm, (CURE,), monkeypatch)
    assert "does worse" in bench.attempts[-1].why
