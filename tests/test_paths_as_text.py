"""A path may be given as text, wherever the functions of ``hexport`` take one."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import hexport
import small_models as small
from quantised_graphs import cnn
from rule_checks import TARGET, random_feeds

VERBS = [name for name in hexport.__all__ if inspect.isroutine(getattr(hexport, name))]


@pytest.mark.parametrize("verb", VERBS)
def test_what_takes_a_path_takes_text(verb: str) -> None:
    for parameter in inspect.signature(getattr(hexport, verb)).parameters.values():
        if "Path" in str(parameter.annotation):
            assert "str | Path" in str(parameter.annotation), parameter


def test_from_a_file_to_a_package_without_a_path(tmp_path: Path) -> None:
    proto = cnn()
    model, prepared, made = small.save(proto, tmp_path / "m.onnx"), tmp_path / "p.onnx", tmp_path / "q.onnx"
    calib, settled = tmp_path / "calib.npz", tmp_path / "settled.json"
    feeds = [random_feeds(proto, seed) for seed in range(4)]
    np.savez(calib, **{name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]})
    settled.write_text(json.dumps({"nodes": {"gemm": "fp16"}}), encoding="utf-8")
    hexport.prepare(str(model), output=str(prepared), target=TARGET, calib=str(calib))
    common = {"calib": str(calib), "override": str(settled), "effort": "fast", "scheme": "8a8w"}
    done = hexport.quantize(str(prepared), output=str(made), target=TARGET, **common)
    assert Path(done.output) == made
    hexport.compile([str(made)], [TARGET], str(tmp_path / "bin"), native_log=str(tmp_path / "native.log"))
    assert {file.suffix for file in (tmp_path / "bin").iterdir()} == {".onnx", ".bin"}
    assert (tmp_path / "native.log").is_file()
    hexport.build(str(model), output=str(tmp_path / "pkg"), targets=[TARGET], **common)
    assert hexport.open_package(str(tmp_path / "pkg")).manifest.artefacts
