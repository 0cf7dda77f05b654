"""Calibration data that do not fit are refused, with the sample's number and the input's name."""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration_inputs import ONE, TWO, Array, Forms, made, open_for, stacked
from hexport.errors import BadSamples, UsageError

Change = Callable[[dict[str, Array]], dict[str, Any]]


def _with(name: str, change: Callable[[Array], object]) -> Change:
    return lambda sample: {**sample, name: change(sample[name])}


def _first(value: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        changed = array.copy()
        changed[0, 2] = value
        return changed

    return change


BAD: dict[str, tuple[Change, str]] = {
    "missing": (lambda sample: {"x": sample["x"]}, r"nothing for input 'ids'"),
    "extra": (lambda sample: {**sample, "label": np.zeros(1)}, r"'label' is no input of the model"),
    "wrong": (lambda sample: {"y": sample["x"], "ids": sample["ids"]}, r"nothing for input 'x'"),
    "shape": (_with("x", lambda a: a[:, :3]), r"input 'x' has shape \[1, 3\]"),
    "rank": (_with("x", lambda a: a[0, 0]), r"input 'x' has shape \[\]"),
    "rank, and no batch": (_with("ids", lambda a: a[0]), r"input 'ids' has shape \[\]"),
    "double": (_with("x", lambda a: a.astype(np.float64)), r"input 'x' is float64(.|\n)*astype\('float32'\)"),
    "bytes": (_with("x", lambda a: np.abs(a).astype(np.uint8)), r"input 'x' is uint8"),
    "float ids": (_with("ids", lambda a: a.astype(np.float32)), r"input 'ids' is float32"),
    "too large": (_with("ids", lambda a: a.astype(np.uint64) + np.uint64(2**63)), r"input 'ids' holds \d+"),
    "nan": (_with("x", _first(np.nan)), r"input 'x' holds nan at \[0, 2\]"),
    "inf": (_with("x", _first(-np.inf)), r"input 'x' holds -inf at \[0, 2\]"),
    "objects": (_with("x", lambda a: a.astype(object)), r"input 'x' is object"),
    "ragged": (_with("x", lambda a: [[1.0], [1.0, 2.0]]), r"input 'x' is a list that numpy cannot take"),
    "text": (_with("x", lambda a: "four"), r"input 'x' has shape \[\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_sample_is_named(case: str) -> None:
    change, says = BAD[case]
    samples: list[Any] = [*made(TWO)]
    samples[3] = change(made(TWO)[3])
    data = open_for(TWO, iter(samples))
    taken: list[object] = []
    with pytest.raises(BadSamples, match=rf"sample 3: {says}"):
        taken.extend(data)
    assert len(taken) == 3
    # A generator that failed is at its end; the next pass must not take that for the end of the data.
    with pytest.raises(BadSamples, match="sample 3"):
        list(data)


@pytest.mark.parametrize("case", ["missing", "extra", "shape", "rank", "double", "nan"])
def test_a_bad_sample_in_a_file_is_named(case: str, tmp_path: Path) -> None:
    change, says = BAD[case]
    for number, sample in enumerate(made(TWO)):
        np.savez(tmp_path / f"{number}.npz", **(change(sample) if number == 3 else sample))
    with pytest.raises(BadSamples, match=rf"3\.npz, sample 3: {says}"):
        list(open_for(TWO, tmp_path))


@pytest.mark.parametrize("case", ["missing", "extra", "shape", "rank", "double", "bytes"])
def test_an_archive_is_refused_by_its_headers(case: str, tmp_path: Path) -> None:
    change, says = BAD[case]
    changed = stacked([change(sample) for sample in made(TWO)])
    np.savez(tmp_path / "calib.npz", **changed)
    with pytest.raises(BadSamples, match=rf"calib\.npz(, sample 0)?: {says}"):
        open_for(TWO, tmp_path / "calib.npz")


def test_a_nan_in_an_archive_is_named(tmp_path: Path) -> None:
    samples = made(TWO)
    samples[4]["x"][0, 1] = np.nan
    np.savez(tmp_path / "calib.npz", **stacked(samples))
    with pytest.raises(BadSamples, match=r"calib\.npz, sample 4: input 'x' holds nan at \[0, 1\]"):
        list(open_for(TWO, tmp_path / "calib.npz"))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.float32(3)}, "'x' is a lone number"),
        ({"x": np.zeros((0, 1, 4), np.float32)}, "holds no sample"),
        ({"x": np.zeros((3, 1, 4), np.float32, order="F")}, "'x' is stored in Fortran order"),
        ({"x": np.array([None, {}])}, "input 'x' cannot be read(.|\n)*pickle"),
        ({"../../outside": np.zeros((2, 1, 4), np.float32)}, "nothing for input 'x'"),
        ({"x": made(ONE)[0]["x"], "../../outside": np.zeros(3)}, "'../../outside' is no input"),
        ({"x": np.zeros((2, 1, 4), "V4")}, "input 'x' is void"),
    ],
)
def test_odd_arrays_in_an_archive(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", **arrays)
    with pytest.raises(BadSamples, match=says):
        list(open_for(ONE, tmp_path / "calib.npz"))
    assert [path.name for path in tmp_path.iterdir()] == ["calib.npz"]


def test_inputs_with_different_numbers_of_samples(tmp_path: Path) -> None:
    arrays = stacked(made(TWO))
    np.savez(tmp_path / "calib.npz", x=arrays["x"], ids=arrays["ids"][:2])
    with pytest.raises(BadSamples, match="5 of 'x', 2 of 'ids'"):
        open_for(TWO, tmp_path / "calib.npz")


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "calib.npz"
    np.savez(path, **stacked(made(ONE)))
    with zipfile.ZipFile(path) as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", content)
    with pytest.raises(BadSamples, match=r"calib\.npz cannot be read(.|\n)*the same name"):
        open_for(ONE, path)


def test_more_bytes_than_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "calib.npz"
    np.savez(path, **stacked(made(ONE)))
    with zipfile.ZipFile(path) as archive:
        content = archive.read("x.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content + b"more")
    with pytest.raises(BadSamples, match=r"sample 4 cannot be read(.|\n)*more bytes than the header says"):
        list(open_for(ONE, path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_are_refused_or_read(save: Callable[..., None], tmp_path: Path) -> None:
    """One changed byte or a cut: nothing but our own error comes out, and damaged data never pass."""
    path = tmp_path / "calib.npz"
    save(path, **stacked(made(TWO)))
    whole, wanted = path.read_bytes(), open_for(TWO, path).fingerprint
    rng = random.Random(0)
    refused = 0
    for _ in range(300):
        mutant = bytearray(whole)
        at = rng.randrange(len(mutant))
        if rng.random() < 0.2:
            del mutant[at:]
        else:
            mutant[at] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        try:
            assert open_for(TWO, path).fingerprint == wanted
        except BadSamples:
            refused += 1
    assert refused > 100


def test_a_checksum_is_compared_also_under_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "calib.npz"
    form: Forms = {"x": ("float32", (1, 4096))}  # more than is read ahead with the header
    np.savez(path, **stacked(made(form)))
    content = bytearray(path.read_bytes())
    last = made(form)[-1]["x"].tobytes()
    content[content.index(last)] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadSamples, match=r"sample 4 cannot be read(.|\n)*CRC"):
        list(open_for(form, path, limit=5))


def test_sub_folders_must_agree(tmp_path: Path) -> None:
    for name in TWO:
        (tmp_path / name).mkdir()
        for number, sample in enumerate(made(TWO)):
            np.save(tmp_path / name / f"{number}.npy", sample[name])
    (tmp_path / "ids" / "2.npy").unlink()
    with pytest.raises(BadSamples, match=r"sample 2: input 'ids' has no file 2\.npy"):
        open_for(TWO, tmp_path)
    np.save(tmp_path / "ids" / "2.npy", np.zeros(4, np.int64))
    with pytest.raises(BadSamples, match=r"2\.npy, sample 2: input 'ids' has shape \[4\]"):
        list(open_for(TWO, tmp_path))
    (tmp_path / "labels").mkdir()
    with pytest.raises(BadSamples, match="'labels' is no input"):
        open_for(TWO, tmp_path)
    (tmp_path / "labels").rmdir()
    np.save(tmp_path / "0.npy", np.zeros(4))
    with pytest.raises(BadSamples, match=r"two kinds: 0\.npy and ids"):
        open_for(TWO, tmp_path)


def test_folders_without_samples(tmp_path: Path) -> None:
    with pytest.raises(BadSamples, match="it is empty"):
        open_for(ONE, tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(BadSamples, match=r"it has notes\.txt"):
        open_for(ONE, tmp_path)
    np.save(tmp_path / "0.npy", made(TWO)[0]["x"])
    with pytest.raises(BadSamples, match=r"0\.npy, sample 0: an \.npy file holds one array"):
        open_for(TWO, tmp_path)
    np.save(tmp_path / "1.npy", made(TWO)[1]["x"])
    assert open_for(ONE, tmp_path).notes == ("1 other file(s) or folder(s) are left out: notes.txt",)
    (tmp_path / "1.npy").write_bytes((tmp_path / "0.npy").read_bytes()[:-3])
    with pytest.raises(
        BadSamples, match=r"1\.npy, sample 1, input 'x' cannot be read(.|\n)*3 bytes too early"
    ):
        list(open_for(ONE, tmp_path))
    (tmp_path / "1.npy").write_bytes((tmp_path / "0.npy").read_bytes() + b"more")
    with pytest.raises(BadSamples, match=r"1\.npy, sample 1, input 'x' cannot be read(.|\n)*more bytes"):
        list(open_for(ONE, tmp_path))


def test_data_that_say_nothing() -> None:
    one = made(ONE)[0]
    with pytest.raises(
        BadSamples, match=re.compile("samples 0 to 2 are identical.*one point only", re.DOTALL)
    ):
        list(open_for(ONE, [one, one, one]))
    flat = [np.full((1, 4), value, np.float32) for value in (0.0, 0.5, 1.0)]
    with pytest.raises(BadSamples, match="input 'x' is constant in every sample"):
        list(open_for(ONE, flat))
    with pytest.raises(BadSamples, match="holds no sample"):
        list(open_for(ONE, iter([])))


def test_data_that_are_merely_odd() -> None:
    def notes(forms: Forms, samples: object) -> tuple[str, ...]:
        data = open_for(forms, samples)
        assert data.fingerprint
        return data.notes

    first, second = made(ONE, 2)
    zeros = np.zeros((1, 4), np.float32)
    assert notes(ONE, [first]) == ("there is one sample only; ranges are measured on one point",)
    assert notes(ONE, [first, zeros, second]) == (
        "input 'x' is constant in 1 of 3 samples, first in sample 1",
    )
    states = [{**sample, "x": zeros} for sample in made(TWO)]
    assert notes(TWO, states) == ("input 'x' is constant in every sample; if it always is, use --freeze",)
    scaled: Forms = {"x": ("float32", (1, 4)), "by": ("float32", ())}
    gains = [{"x": zeros, "by": np.float32(i)} for i in range(3)]
    assert notes(scaled, gains) == ("input 'x' is constant in every sample; if it always is, use --freeze",)
    # One number is no tensor that could be constant.
    assert notes({"x": ("float32", (1,))}, [np.array([i], np.float32) for i in range(3)]) == ()


def test_data_that_change_between_passes() -> None:
    samples = made(ONE)
    data = open_for(ONE, samples)
    assert data.fingerprint
    samples[2]["x"] = samples[2]["x"] + 1
    with pytest.raises(BadSamples, match="not those of the pass before"):
        list(data)


def _breaks() -> Iterator[Array]:
    yield made(ONE)[0]["x"]
    raise KeyError("photo 17")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (_breaks, r"_breaks, sample 1: it raised KeyError(.|\n)*photo 17"),
        (lambda needs_more: [], "sample 0: it raised TypeError"),
        (lambda: 3, "gives a int, which is no series of samples"),
        ({"x": np.zeros((2, 1, 4), np.float32)}, "gives a dict, which is no series"),
        (["x", "y"], "sample 0: a str is no array for input 'x'"),
        ([(np.zeros((1, 4)), np.zeros(3))], r"sample 0: 2 array\(s\) without names"),
    ],
)
def test_python_sources_that_fail(source: object, says: str) -> None:
    data = open_for(ONE, source)
    for _ in range(2):
        with pytest.raises(BadSamples, match=says):
            list(data)


def test_an_interrupted_source_is_not_complete() -> None:
    def interrupted() -> Iterator[Array]:
        yield from (sample["x"] for sample in made(ONE, 2))
        raise KeyboardInterrupt

    data = open_for(ONE, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(data)
    with pytest.raises(BadSamples, match="interrupted"):
        list(data)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "calib.txt").write_text("x")
    for source, says in (
        (tmp_path / "none.npz", "there is no"),
        ("C:\\data\\calib.npz", "there is no"),
        ("a\0b", "there is no"),
        (tmp_path / "calib.txt", r"is not an \.npz file"),
    ):
        with pytest.raises(BadSamples, match=says):
            open_for(ONE, source)


def test_models_that_cannot_be_calibrated() -> None:
    with pytest.raises(BadSamples, match="input 'x' takes bfloat16"):
        open_for({"x": ("bfloat16", (2,))}, [])
    with pytest.raises(BadSamples, match="nothing to calibrate with"):
        open_for(ONE, [], frozen={"x": np.zeros((1, 4), np.float32)})
    with pytest.raises(UsageError, match="holds no pictures"):
        open_for(ONE, made(ONE), preprocess="preprocess.toml")


def test_no_room_for_the_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_for(ONE, iter(made(ONE)))

    def full(_: object) -> memoryview:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hexport.quantization.data.spool.raw_bytes", full)
    with pytest.raises(UsageError, match=r"No space left(.|\n)*TMPDIR"):
        list(data)
