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


def test_programs_that_cannot_be_used(ptes: MadePtes, tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("hello")
    other = ptes.path("split")
    for pte, program, said in (
        (ptes.path("two"), tmp_path / "text.pt2", "cannot be loaded"),
        (ptes.path("two"), tmp_path / "gone.pt2", "is no file"),
        (other, ptes.folder / "two.pt2", "is not the program"),
    ):
        with pytest.raises(ProgramUnusable) as raised:
            verify(pte, program=program, samples=1)
        assert said in raised.value.what


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path(self.path).touch, ()


def armed(source: Path, target: Path, kind: str, mark: Path) -> Path:
    """A copy of a program that makes the file ``mark`` when it is loaded by torch alone, or first run."""
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def changed(name: str, data: bytes) -> bytes:
        if kind == "pickle" and "sample_inputs" in name:
            return _pickled(Bomb(str(mark)))
        if kind == "pickle" or not name.endswith("models/model.json"):
            return data
        document = json.loads(data)
        if kind == "guard":
            document["guards_code"] = [code]
        else:
            tensor = next(iter(document["graph_module"]["graph"]["tensor_values"].values()))
            tensor["sizes"][0] = {"as_expr": {"expr_str": code, "hint": None}}
        return json.dumps(document).encode()

    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, changed(name, old.read(name)))
    return target


def _pickled(thing: object) -> bytes:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(thing))
        archive.writestr("model/version", "3\n")
        archive.writestr("model/byteorder", "little")
    return inner.getvalue()


ARMED = {"formula": "is more than a formula", "guard": "is more than a formula", "pickle": "example inputs"}


@pytest.mark.parametrize("kind", ARMED)
def test_nothing_in_a_program_is_executed(ptes: MadePtes, tmp_path: Path, kind: str) -> None:
    """Named, found beside the .pte, or lowered: refused with the reason, and it did not run."""
    mark = tmp_path / "mark"
    evil = armed(ptes.folder / "two.pt2", tmp_path / "evil.pt2", kind, mark)
    # Torch alone runs it.
    alone = f"import torch\np = torch.export.load({str(evil)!r})\np.module()(*p.example_inputs[0])"
    subprocess.run([sys.executable, "-c", alone], capture_output=True, check=False)
    assert mark.exists()
    mark.unlink()

    done = subprocess.run(
        [sys.executable, "-m", "hexport", "verify", str(ptes.path("two")), "--program", str(evil)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "HX457" in done.stderr
    assert ARMED[kind] in " ".join(done.stderr.split())

    pte = Path(shutil.copy(ptes.path("integers"), tmp_path / "integers.pte"))
    armed(ptes.folder / "integers.qdq.pt2", tmp_path / "integers.qdq.pt2", kind, mark)
    with pytest.raises(ProgramUnusable, match=r"integers\.qdq\.pt2 cannot be loaded") as beside:
        verify(pte, program=ptes.folder / "two.pt2", samples=1)
    assert ARMED[kind] in beside.value.why

    with pytest.raises(ProgramUnusable, match="cannot be loaded") as lowered:
        lower(evil, tmp_path / "evil.pte", target="SM8650")
    assert ARMED[kind] in lowered.value.why
    assert not mark.exists()
    assert not (tmp_path / "evil.pte").exists()


def test_a_quantised_program_calls_what_quantises_and_nothing_else(ptes: MadePtes, tmp_path: Path) -> None:
    pte = Path(shutil.copy(ptes.path("integers"), tmp_path / "integers.pte"))
    source, target = ptes.folder / "integers.qdq.pt2", tmp_path / "integers.qdq.pt2"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            known, strange = b"quantized_decomposed.quantize_per_tensor", b"torchao.swizzle_mm"
            new.writestr(name, old.read(name).replace(known, strange))
    with pytest.raises(ProgramUnusable) as raised:
        verify(pte, program=ptes.folder / "two.pt2", samples=1)
    assert "it calls torch.ops.torchao.swizzle_mm.default" in raised.value.why
