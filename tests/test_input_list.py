"""Lists of input files: read as the reference runner reads them; wrong lines are named by their number."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hexport
import small_models
from cpu_packages import cpu_package
from hexport import run
from hexport.errors import UsageError
from hexport.packaging.manifest import Contract, Tensor
from hexport.runtime.array_files import read_arrays
from hexport.runtime.input_list import BadInputList, read_input_list
from hexport.runtime.input_list_outputs import write_outputs

X, N = Tensor("x", "float32", (1, 3)), Tensor("n", "int64", (2,))
OPEN = Tensor("ids", "int32", (1, "seq"))


def listed(folder: Path, text: str) -> Path:
    path = folder / "list.txt"
    path.write_text(text, "utf-8")
    return path


def files(folder: Path) -> tuple[Any, Any]:
    x, n = np.float32([[1, 2, 3]]), np.int64([4, 5])
    x.tofile(folder / "x.raw")
    n.tofile(folder / "n.raw")
    np.save(folder / "x.npy", x)
    np.save(folder / "n.npy", n)
    return x, n


@pytest.mark.parametrize(
    ("line", "raw"),
    [
        ("x.raw n.raw", True),
        ("  x.raw\tn.raw  \r", True),
        ("n:=n.raw x:=x.raw", True),
        ('x:="x.npy" n:=n.raw', False),
        ("# first\n\n  # second\nx.npy n.npy\n\n", False),
        ("\ufeffx.raw n.raw", True),
    ],
)
def test_one_inference(tmp_path: Path, line: str, raw: bool) -> None:
    x, n = files(tmp_path)
    found = read_input_list(listed(tmp_path, line), (X, N))
    (sample,) = found.samples
    assert found.raw is raw
    np.testing.assert_array_equal(sample["x"], x)
    np.testing.assert_array_equal(sample["n"], n)
    assert (sample["x"].dtype, sample["n"].dtype) == (x.dtype, n.dtype)


def test_names_with_spaces_and_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the list first, then from the current folder on."""
    (tmp_path / "lists").mkdir()
    (tmp_path / "here").mkdir()
    np.float32([[7, 8, 9]]).tofile(tmp_path / "lists" / "a b.raw")
    np.float32([[1, 1, 1]]).tofile(tmp_path / "here" / "c.raw")
    np.float32([[2, 2, 2]]).tofile(tmp_path / "here" / "a b.raw")
    monkeypatch.chdir(tmp_path / "here")
    absolute = tmp_path / "here" / "a b.raw"
    text = f'"a b.raw"\nx:=c.raw\nx:="{absolute}"\n'
    found = read_input_list(listed(tmp_path / "lists", text), (X,))
    assert [sample["x"][0, 0] for sample in found.samples] == [7, 1, 2]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_the_size_of_a_raw_file_settles_one_open_dim(lengths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, length in enumerate(lengths):
            np.arange(length, dtype=np.int32).tofile(folder / f"{number}.raw")
        text = "\n".join(f"{number}.raw" for number in range(len(lengths)))
        found = read_input_list(listed(folder, text), (OPEN,))
    assert [sample["ids"].shape for sample in found.samples] == [(1, length) for length in lengths]
    assert [sample["ids"].ravel().tolist() for sample in found.samples] == [list(range(n)) for n in lengths]


def test_optional_inputs_may_be_left_out(tmp_path: Path) -> None:
    files(tmp_path)
    more = Tensor("n", "int64", (2,), optional=True)
    for text, names in (("x.raw", ["x"]), ("x.raw n.raw", ["x", "n"]), ("x:=x.raw", ["x"])):
        (sample,) = read_input_list(listed(tmp_path, text), (X, more)).samples
        assert list(sample) == names


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x.raw", "1 files for 2 inputs"),
        ("x.raw n.raw n.raw", "3 files for 2 inputs"),
        ("x:=x.raw n.raw", "some have none"),
        ("x:=x.raw y:=n.raw", "'y' is no input"),
        ("x:=x.raw x:=x.raw", "'x' is given twice"),
        ("x:=x.raw", "no file for input 'n'"),
        ("x.raw gone.raw", "there is no file 'gone.raw'"),
        ("x:= n:=n.raw", "there is no file ''"),
        ("n.raw x.raw", "n.raw has 16 bytes"),
        ("n.npy x.npy", "n.npy is int64[2]"),
        ("x.raw broken.npy", "broken.npy cannot be read"),
        ("x.raw pickled.npy", "pickled.npy cannot be read"),
        ("x.raw zipped.npy", "zipped.npy cannot be read"),
        ("x.raw more.npz", "neither raw nor .npy"),
        ('x.raw "n.raw', "quotation mark"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    files(tmp_path)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY nothing")
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "more.npz", n=np.int64([4, 5]))
    shutil.copy(tmp_path / "more.npz", tmp_path / "zipped.npy")
    with pytest.raises(BadInputList) as raised:
        read_input_list(listed(tmp_path, f"# comment\nx.raw n.raw\n\n{line}\n"), (X, N))
    assert "line 4: " in raised.value.what
    assert said in raised.value.what


def test_lists_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00\x80")
    for path in (tmp_path / "list.txt", tmp_path / "gone.txt", tmp_path):
        with pytest.raises(BadInputList, match="cannot be read"):
            read_input_list(path, (X,))
    with pytest.raises(BadInputList, match="no line with inputs"):
        read_input_list(listed(tmp_path, "# nothing\n\n"), (X,))
    two_open = Tensor("m", "float32", ("a", "b"))
    files(tmp_path)
    with pytest.raises(BadInputList, match="does not tell its shape"):
        read_input_list(listed(tmp_path, "x.raw"), (two_open,))


def test_older_files_in_the_folder_are_said(tmp_path: Path) -> None:
    many = [{"y": np.float32([i])} for i in range(3)]
    assert write_outputs(tmp_path / "out", many, raw=False) == ()
    (note,) = write_outputs(tmp_path / "out", many[:1], raw=False)
    assert "output_1_0.npy" in note


# ── the same reader for models and packages ───────────────────────────────────────────────────────────────


def test_a_model_on_a_list(tmp_path: Path) -> None:
    model = small_models.save(small_models.conv_relu("N"), tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    given_ = [rng.normal(size=(n, 3, 16, 16)).astype(np.float32) for n in (1, 2)]
    for number, array in enumerate(given_):
        array.tofile(tmp_path / f"{number}.raw")
    path = listed(tmp_path, "0.raw\n1.raw")
    done = subprocess.run(
        [sys.executable, "-m", "hexport", "run", str(model), "--input-list", str(path),
         "--output-folder", str(tmp_path / "out"), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 2
    for number, array in enumerate(given_):
        file = tmp_path / "in.npz"
        np.savez(file, x=array)
        run(model, inputs=file, output=tmp_path / "out.npz")
        expected = read_arrays(tmp_path / "out.npz")["y"]
        assert (tmp_path / "out" / f"output_{number}_0.raw").read_bytes() == expected.tobytes()


def test_a_package_on_a_list(tmp_path: Path) -> None:
    proto = small_models.conv_relu("N")
    contract = Contract(
        (Tensor("x", "float32", ("N", 3, 16, 16)),), (Tensor("y", "float32", ("N", 8, 16, 16)),)
    )
    package = cpu_package(proto, contract, tmp_path / "pkg")
    rng = np.random.default_rng(0)
    asked = [rng.normal(size=(1, 3, 16, 16)).astype(np.float32) for _ in range(2)]
    for number, array in enumerate(asked):
        np.save(tmp_path / f"{number}.npy", array)
    out = tmp_path / "out.npz"
    ran = run(
        package,
        input_list=listed(tmp_path, "x:=0.npy\nx:=1.npy"),
        output_folder=tmp_path / "out",
        output=out,
        backend="cpu",
    )
    assert ran.samples == 2
    with hexport.load(package, "cpu") as session:
        for number, array in enumerate(asked):
            got = np.load(tmp_path / "out" / f"output_{number}_0.npy")
            np.testing.assert_array_equal(got, session.run({"x": array})["y"])
            np.testing.assert_array_equal(read_arrays(out)["y"][number], got)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    model = small_models.save(small_models.conv_relu(), tmp_path / "m.onnx")
    (tmp_path / "file").touch()
    path = listed(tmp_path, "x.raw")
    for how in (
        {"input_list": path, "inputs": tmp_path / "x.npz"},
        {"input_list": path, "samples": True},
        {"input_list": path, "output_folder": tmp_path / "file"},
        {"input_list": path, "output_folder": tmp_path / "gone" / "out"},
        {"input_list": path, "method": "forward"},
        {"output_folder": tmp_path},
    ):
        with pytest.raises(UsageError):
            run(model, **how)  # type: ignore[arg-type]
