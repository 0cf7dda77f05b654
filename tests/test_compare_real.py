"""``compare`` with a real older release beside this one: the machine's own, or fetched from the index."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

import hexport
import small_models as small
from hexport.environments.record import Toolchain
from older_toolchain import RELEASE
from verified_packages import build

pytestmark = pytest.mark.usefixtures("cache")

CHIP = "SM8650"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package")
    return build(place / "pkg", place / "work", [8], share=False)


def test_two_releases_on_one_model(older: Toolchain, tmp_path: Path) -> None:
    path = small.save(small.cut_by_erf(), tmp_path / "m.onnx")
    found = hexport.compare(path, toolchains=(older.name, "this"), target=CHIP, samples=1)
    versions = [side.packages["onnxruntime-qnn"] for side in (found.a, found.b)]
    assert versions == [RELEASE, metadata.version("onnxruntime-qnn")]
    # Both leave the Erf to the CPU, and both tell their traffic; only the newer one has a trace.
    assert (found.row("nodes_cpu").a.value, found.row("nodes_cpu").b.value) == (1, 1)
    assert found.new_cpu_nodes == ()
    for figure in ("context_bytes", "ddr_bytes"):
        assert (found.row(figure).ratio or 0) > 0
    assert found.row("precisions").a.value is None
    assert RELEASE in found.row("precisions").a.note
    assert found.row("precisions").b.value
    assert (found.row("sqnr_b_against_a").b.number or 0) > 40


def test_an_older_release_does_not_load_what_a_newer_one_made(older: Toolchain, package: Path) -> None:
    found = hexport.compare(package, toolchains=("this", older.name), samples=1)
    loads = found.row("packaged_loads")
    assert (loads.a.value, loads.b.value) == (True, False)
    assert "QNN_CONTEXT_ERROR" in loads.b.note
    assert "packaged_loads" in {row.figure for row in found.worse}
    # What it was made from compiles with both.
    assert found.row("works").b.value is True
    assert found.compiled == "models/seq8.onnx"


def test_the_npu_against_qnns_own_cpu(older: Toolchain, tmp_path: Path) -> None:
    path = small.save(small.conv_relu(), tmp_path / "m.onnx")
    found = hexport.compare(
        path, toolchains=(older.name,), backends=("htp", "qnn-cpu"), target=CHIP, samples=1
    )
    assert found.passed
    assert found.row("nodes_npu").a.value == found.row("nodes_npu").b.value == 2
    assert 45 < (found.row("sqnr:y").a.number or 0) < 100 < (found.row("sqnr:y").b.number or 0)
    for figure in ("context_bytes", "ddr_bytes"):
        assert found.row(figure).b.value is None
        assert "qnn-cpu" in found.row(figure).b.note
