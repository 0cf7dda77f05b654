"""A model that nothing makes compile: prepare saves the smallest piece that fails, beside its output."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest
from rich.console import Console

from failing_models import refused_in_compiling, sound
from hexport.backend.failures import BackendError
from hexport.observe.check import check
from hexport.preparation import verb
from hexport.preparation.view import show


def test_the_smallest_failing_piece_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(refused_in_compiling(), model)
    # With its rules and the rescue the model would compile: this is about what neither can cure.
    monkeypatch.setattr(verb, "rescue", lambda bench, standing, seconds: standing)
    result = verb.prepare(model, output=tmp_path / "out.onnx", target="SM8650", rules="PowToMul")
    assert result.after.verdict is None
    assert result.repro is not None
    assert [name.split()[0] for name in result.repro.nodes] == ["MaxPool"]
    assert result.repro.of > 20
    with pytest.raises(BackendError):
        check(Path(result.repro.file), target="SM8650")
    shown = io.StringIO()
    show(result, Console(file=shown, width=200))
    assert "out.repro.onnx" in shown.getvalue()
    assert result.to_json()["repro"]


def test_a_model_that_compiles_has_none(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(sound(), model)
    result = verb.prepare(model, output=tmp_path / "out.onnx", target="SM8650", rules="PowToMul")
    assert result.repro is None
    assert not (tmp_path / "out.repro.onnx").exists()
