"""A .pte beside the torch program that it was made of, and beside its quantised form."""

from __future__ import annotations

import io
import json
import math
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import small_models
from hexport import verify
from hexport.errors import UsageError
from hexport.executorch.lowering.verb import lower
from hexport.executorch.pte.failures import ProgramUnusable
from hexport.executorch.verification.verb import PteMatch
from hexport.verification.failures import NotVerifiable
from pte_files import MadePtes, describe, ptes_fixture  # noqa: F401 - named ptes


def samples(ptes: MadePtes, name: str, path: Path) -> Path:
    """The one that the ranges were taken from."""
    np.savez(path, **{key: array[None] for key, array in ptes.inputs(name).items()})
    return path


def worst(outputs: list[dict[str, Any]]) -> float:
    return min(math.inf if one["sqnr_db"] == "exact" else float(one["sqnr_db"]) for one in outputs)


def test_beside_eager_and_beside_qdq(ptes: MadePtes, tmp_path: Path) -> None:
    file = samples(ptes, "integers", tmp_path / "in.npz")
    done = subprocess.run(
        [sys.executable, "-m", "hexport", "verify", str(ptes.path("integers")), "--json", "--min-sqnr", "30",
         "--program", str(ptes.folder / "two.pt2"), "--inputs", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["passed"], document["target"], document["npu_nodes"]) == (True, "SM8650", 1)
    assert document["qdq"].endswith("integers.qdq.pt2")
    eager, quantised = (worst(document[key]) for key in ("outputs", "qdq_outputs"))
    # What the NPU adds to a quantised program is less than what quantising cost.
    assert quantised > eager > 30


def test_short_of_what_is_asked_for_is_exit_1(ptes: MadePtes, tmp_path: Path) -> None:
    file = samples(ptes, "two", tmp_path / "in.npz")
    done = subprocess.run(
        [sys.executable, "-m", "hexport", "verify", str(ptes.path("two")), "--min-sqnr", "120",
         "--program", str(ptes.folder / "two.pt2"), "--inputs", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "FAILED: output_0, output_1" in done.stdout


def test_what_lowering_leaves_beside_it_is_enough(ptes: MadePtes, tmp_path: Path) -> None:
    program = Path(shutil.copy(ptes.folder / "two.pt2", tmp_path / "two.pt2"))
    inputs = dict(zip(("x", "y"), ptes.inputs("two").values(), strict=True))
    made = lower(
        program, tmp_path / "m.pte", target="SM8650", scheme="8a8w", samples=[inputs], keep_quantised=True
    )
    np.savez(tmp_path / "in.npz", **{name: array[None] for name, array in inputs.items()})
    match = verify(made.output, inputs=tmp_path / "in.npz", min_sqnr=20)
    assert isinstance(match, PteMatch)
    assert match.passed
    assert (Path(match.reference).name, Path(match.qdq).name) == ("two.pt2", "m.qdq.pt2")
    assert [one.name for one in match.outputs] == [one.name for one in match.qdq_outputs]
    program.unlink()
    with pytest.raises(NotVerifiable, match="nothing to compare"):
        verify(made.output)


def test_beside_an_onnx_model(ptes: MadePtes, tmp_path: Path) -> None:
    """The same module written in ONNX, by its names."""
    with np.load(ptes.folder / "crossed_weights.npz") as weights:
        constants = [small_models.constant(name.replace(".", "_"), weights[name]) for name in weights.files]
    proto = small_models.model(
        [
            helper.make_node("Gemm", ["x", "a_weight", "a_bias"], ["h"], transB=1),
            helper.make_node("Relu", ["h"], ["early"]),
            helper.make_node("Gemm", ["early", "b_weight", "b_bias"], ["l"], transB=1),
            helper.make_node("Mul", ["l", "y"], ["late"]),
        ],
        [small_models.value("x", [1, 8]), small_models.value("y", [1, 6])],
        [small_models.value("early", [1, 4]), small_models.value("late", [1, 6])],
        constants,
    )
    pte = Path(shutil.copy(ptes.path("crossed"), tmp_path / "m.pte"))
    inputs = dict(zip(("y", "x"), ptes.inputs("crossed").values(), strict=True))
    describe(pte, inputs, dict(zip(("late", "early"), ptes.expected("crossed").values(), strict=True)))
    model = small_models.save(proto, tmp_path / "m.onnx")
    assert verify(pte, reference=model, min_sqnr=40).passed
    with pytest.raises(UsageError):
        verify(pte, reference=model, program=tmp_path / "m.pt2")
    with pytest.raises(UsageError):
        verify(model, program=tmp_path / "m.pt2", target="SM8650")


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path(self.path).write_text, ("boom",)


def test_programs_that_cannot_be_used(ptes: MadePtes, tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("hello")
    armed = _armed(ptes.folder / "two.pt2", tmp_path / "armed.pt2", tmp_path / "boom")
    other = ptes.path("split")
    for pte, program, said in (
        (ptes.path("two"), tmp_path / "text.pt2", "cannot be loaded"),
        (ptes.path("two"), armed, "cannot be loaded"),
        (ptes.path("two"), tmp_path / "gone.pt2", "is no file"),
        (other, ptes.folder / "two.pt2", "is not the program"),
    ):
        with pytest.raises(ProgramUnusable) as raised:
            verify(pte, program=program, samples=1)
        assert said in raised.value.what
    assert not (tmp_path / "boom").exists()


def _armed(source: Path, target: Path, mark: Path) -> Path:
    """The program with example inputs that do something when they are unpickled."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(Bomb(str(mark))))
        archive.writestr("model/version", "3\n")
        archive.writestr("model/byteorder", "little")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = inner.getvalue() if "sample_inputs" in name else old.read(name)
            new.writestr(name, content)
    return target
