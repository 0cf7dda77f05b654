"""The second build: from what the first kept, in little time, and anew where that is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import numpy_helper

import small_models as small
from hexport.building.verb import build
from hexport.errors import UsageError
from hexport.packaging import open_package

TARGET = "SM8650"
HEAVY = {"numpy", "onnx", "onnx_ir", "onnxruntime", "onnxruntime_qnn", "email", "statistics"}
"""What a build need not load that finds every step kept."""
_BUILD = """
import json, sys
from pathlib import Path
import hexport
model, output, target = sys.argv[1:]
built = hexport.build(Path(model), output=Path(output), targets=[target], dims={"batch": 1})
print(json.dumps({"made": built.steps_made, "taken": built.steps_taken, "loaded": sorted(sys.modules)}))
"""


class Places:
    """A model, a cache, and builds in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.model = small.save(small.conv_relu("batch"), folder / "model.onnx")
        self.output, self.cache = folder / "pkg", folder / "cache"

    def build(self) -> dict[str, dict[str, int]]:
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, str(self.model), str(self.output), TARGET],
            env={**os.environ, "HEXPORT_CACHE": str(self.cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, dict[str, int]] = json.loads(done.stdout)
        return found

    def entries(self, step: str) -> list[Path]:
        return [path.parent for path in (self.cache / "steps" / step).glob("*/entry.json")]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    made = Places(tmp_path_factory.mktemp("again"))
    assert made.build()["made"]
    return made


def test_it_loads_nothing_that_computes(places: Places) -> None:
    again = places.build()
    assert again["made"] == {}
    assert HEAVY & set(again["loaded"]) == set()


@pytest.mark.parametrize("step", ["ready", "compile", "verify"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_what_is_damaged_is_made_anew(step: str, damage: str, places: Places) -> None:
    before = open_package(places.output).manifest
    (entry,) = places.entries(step)
    file = max(
        (path for path in entry.iterdir() if path.name != "entry.json"), key=lambda p: p.stat().st_size
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data if damage == "flipped" else data[:-1])
    again = places.build()
    assert again["made"] == {step: 1}
    after = open_package(places.output).manifest  # every file was compared with its SHA-256
    assert [(one.path, one.role) for one in after.artefacts] == [
        (one.path, one.role) for one in before.artefacts
    ]
    assert after.verification == before.verification


def test_a_model_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    model = small.save(small.conv_relu(), tmp_path / "model.onnx")

    def change(told: str) -> None:
        if "verifying" in told:
            os.utime(model, (1, 1))

    with pytest.raises(UsageError, match="changed while it was built"):
        build(model, output=tmp_path / "pkg", targets=[TARGET], say=change)
    assert not (tmp_path / "pkg").exists()


def test_another_model_of_the_same_name_is_another_build(places: Places, tmp_path: Path) -> None:
    own = Places(tmp_path)
    own.cache = places.cache
    proto = small.conv_relu("batch")
    weights = numpy_helper.to_array(proto.graph.initializer[0])
    proto.graph.initializer[0].CopyFrom(small.constant("w", -weights))
    small.save(proto, own.model)
    assert "compile" in own.build()["made"]
