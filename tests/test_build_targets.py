"""One package for several chips, verified on each of them; and what may be left out of a package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sized_models as sized
import small_models as small
from hexport.building.verb import Built, build
from hexport.compiling.options import CompileOptions
from hexport.packaging import open_package
from hexport.packaging.manifest import CONTEXT_BINARY, CONTEXT_MODEL, CPU_MODEL, REPORT, SOURCE_MODEL
from hexport.verification.failures import NotVerifiable
from hexport.verification.verb import verify

pytestmark = pytest.mark.usefixtures("cache")

CHIPS = ("SM8650", "SM8550", "SM7350")
"""Of three generations; the last has no float."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sized.float_samples(tmp_path_factory.mktemp("samples") / "s.npz", 1, 3, 16, 16)


@pytest.fixture(scope="module")
def quantised(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    folder = tmp_path_factory.mktemp("quantised")
    model = small.save(small.conv_relu("batch"), folder / "conv.onnx")
    asked: dict[str, Any] = {"dims": {"batch": 1}, "calib": samples, "scheme": "8a8w", "effort": "fast"}
    return model, build(model, output=folder / "pkg", targets=list(CHIPS), **asked)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_quantised_package_on_each_of_its_chips(
    chip: str, quantised: tuple[Path, Built], samples: Path
) -> None:
    model, built = quantised
    match = verify(built.output, target=chip, inputs=samples, min_sqnr=20)
    assert match.passed
    assert (match.target, match.bucket, match.npu_nodes > 0) == (chip, "model", True)
    assert match.ran.startswith(f"{chip}/")
    assert any(all(other in note for other in CHIPS if other != chip) for note in match.notes)
    # The CPU model inside is the original.
    assert verify(built.output, target=chip, reference=model, inputs=samples).outputs == match.outputs
    # What the build measured is what is measured now, on the samples that it was measured on.
    (said,) = [one for one in built.manifest.verification if one.target == chip]
    assert said.outputs[0].sqnr_db >= match.outputs[0].sqnr_db


def test_each_chip_has_a_folder_of_its_own(quantised: tuple[Path, Built]) -> None:
    package = open_package(quantised[1].output)
    assert [target.htp_arch for target in package.manifest.targets] == [75, 73, 68]
    for chip in CHIPS:
        for role in (CONTEXT_MODEL, CONTEXT_BINARY):
            (found,) = package.find(role, target=chip)
            assert found.path.startswith(f"{chip}/")
            assert found.targets == (chip,)


def test_chips_of_one_generation_are_made_ready_once(tmp_path: Path) -> None:
    model = small.save(sized.pointwise(), tmp_path / "m.onnx")
    sizes: dict[str, Any] = {"dims": {"h": 2}, "buckets": {"w": [3, 4]}}
    built = build(model, output=tmp_path / "p", targets=["SM8650", "SC8380XP", "SM8550"], **sizes)
    archs = [target.htp_arch for target in built.manifest.targets]
    assert built.steps_made["ready"] == len(set(archs)) * 2
    assert built.steps_made["compile"] == len(archs)
    sources = [one for one in built.manifest.artefacts if one.role == SOURCE_MODEL]
    for bucket in ("w-3", "w-4"):
        served = [chip for one in sources if bucket in one.buckets for chip in one.targets]
        assert sorted(served) == sorted(target.name for target in built.manifest.targets)


def test_without_models_for_the_simulator(tmp_path: Path) -> None:
    model = small.save(sized.mostly_weights(128), tmp_path / "m.onnx")
    asked: dict[str, Any] = {"targets": ["SM8650"], "buckets": {"n": [2, 4]}}
    whole = build(model, output=tmp_path / "whole", **asked)
    less = build(model, output=tmp_path / "less", with_source_models=False, with_cpu_model=False, **asked)
    roles = {one.role for one in less.manifest.artefacts}
    assert roles == {CONTEXT_MODEL, CONTEXT_BINARY, REPORT}
    assert {one.role for one in whole.manifest.artefacts} >= {SOURCE_MODEL, CPU_MODEL}
    assert any("left out" in note for note in less.manifest.notes)
    # It was verified all the same, before it was packaged.
    assert less.manifest.verification == whole.manifest.verification
    with pytest.raises(NotVerifiable, match="cannot be run on the simulator"):
        verify(less.output, reference=model)
    # The two buckets and the CPU model have their weights once.
    weights = 2 * 128 * 128 * 4
    assert weights <= whole.package_bytes - less.package_bytes < 1.5 * weights


def test_options_of_the_compiler_arrive(tmp_path: Path) -> None:
    model = small.save(small.conv_relu(), tmp_path / "conv.onnx")
    options = CompileOptions(vtcm_mb=8, finalization=3)
    plain = build(model, output=tmp_path / "plain", targets=["SM8650"])
    built = build(model, output=tmp_path / "pkg", targets=["SM8650"], options=options)
    assert built.steps_taken["ready"] == 1
    assert built.steps_made["compile"] == 1
    for found, asked in ((plain, (4, None)), (built, (8, 3))):
        report = json.loads((found.output / "report.json").read_text("utf-8"))
        (graph,) = report["compiled"]["SM8650"]["artefacts"][0]["contexts"][0]["graphs"]
        assert graph["vtcm_mb"] == asked[0]
        assert asked[1] in (None, graph["optimization_level"])
