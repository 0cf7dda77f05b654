"""Calibration data of every kind: the same samples from each, flat memory, one fingerprint."""

from __future__ import annotations

import io
import sys
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from calibration_inputs import ONE, TWO, Array, Forms, assert_equal, made, open_for, stacked
from hexport import zoo
from hexport.errors import BadSamples, UsageError
from hexport.quantization.data.fitting import HOLDABLE

Samples = list[dict[str, Any]]


def as_archive(samples: Samples, path: Path) -> object:
    np.savez(path / "calib.npz", **stacked(samples))
    return path / "calib.npz"


def as_compressed(samples: Samples, path: Path) -> object:
    np.savez_compressed(path / "calib.npz", **stacked(samples))
    return str(path / "calib.npz")


def as_files(samples: Samples, path: Path) -> object:
    for number, sample in enumerate(samples):
        np.savez(path / f"{number:03}.npz", **sample)
    return path


def as_sub_folders(samples: Samples, path: Path) -> object:
    for name in samples[0]:
        (path / name).mkdir()
        for number, sample in enumerate(samples):
            np.save(path / name / f"{number:03}.npy", sample[name])
    return path


def as_generator(samples: Samples, path: Path) -> object:
    return (dict(sample) for sample in samples)


def as_function_of_tuples(samples: Samples, path: Path) -> object:
    return lambda: (tuple(sample.values()) for sample in samples)


class Reader:
    """Like a calibration data reader of ONNX Runtime: once through, then None."""

    def __init__(self, samples: Samples) -> None:
        self._left = list(samples)

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop(0) if self._left else None


KINDS: list[Callable[[Samples, Path], object]] = [
    as_archive,
    as_compressed,
    as_files,
    as_sub_folders,
    as_generator,
    as_function_of_tuples,
    lambda samples, path: samples,
    lambda samples, path: Reader(samples),
    lambda samples, path: lambda: Reader(samples),
]


@pytest.mark.parametrize("store", KINDS)
def test_every_kind_gives_the_same_again_and_again(store: Callable[..., object], tmp_path: Path) -> None:
    samples = made(TWO)
    data = open_for(TWO, store(samples, tmp_path))
    assert_equal(data, samples)
    assert_equal(data, samples)
    assert data.count == len(samples)
    assert data.notes == ()
    plain = open_for(TWO, samples)
    assert data.fingerprint == plain.fingerprint
    assert data.fingerprint != open_for(TWO, made(TWO, seed=1)).fingerprint


@pytest.mark.parametrize("store", KINDS)
def test_samples_that_are_one_of_a_batch_become_a_batch_of_one(
    store: Callable[..., object], tmp_path: Path
) -> None:
    """An array of 5 × 4 for an input of 1 × 4: nothing else can be meant, and it is said."""
    samples = made(TWO)
    ones = [{**sample, "x": sample["x"][0]} for sample in samples]
    data = open_for(TWO, store(ones, tmp_path))
    assert_equal(data, samples)
    assert data.notes == ("input 'x': the samples have no batch axis, and one is put in front",)
    assert data.fingerprint == open_for(TWO, samples).fingerprint


def test_the_fingerprint_sees_order_names_types_and_shapes() -> None:
    numbers = np.arange(8, dtype=np.int32)
    forms: list[tuple[Forms, list[Array]]] = [
        ({"x": ("int32", (4,))}, [numbers[:4], numbers[4:]]),
        ({"x": ("int32", (4,))}, [numbers[4:], numbers[:4]]),
        ({"y": ("int32", (4,))}, [numbers[:4], numbers[4:]]),
        ({"x": ("uint32", (4,))}, [a.astype(np.uint32) for a in (numbers[:4], numbers[4:])]),
        ({"x": ("int32", (2, 2))}, [numbers[:4].reshape(2, 2), numbers[4:].reshape(2, 2)]),
        ({"x": ("int32", (8,))}, [numbers]),
    ]
    found = [open_for(form, values).fingerprint for form, values in forms]
    assert len(set(found)) == len(forms)
    # The order of the inputs is the model's affair, not the data's.
    turned = {name: TWO[name] for name in reversed(list(TWO))}
    assert open_for(turned, made(TWO)).fingerprint == open_for(TWO, made(TWO)).fingerprint


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_memory_does_not_grow_with_the_number_of_samples(save: Callable[..., None], tmp_path: Path) -> None:
    form: Forms = {"x": ("float32", (1, 3, 32, 32))}

    def peak(count: int) -> int:
        save(tmp_path / f"{count}.npz", **stacked(made(form, count)))
        tracemalloc.start()
        total = 0.0
        for sample in open_for(form, tmp_path / f"{count}.npz"):
            total += float(sample["x"].sum())
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert total != 0
        return highest

    peak(2)  # imports and caches
    few, many = peak(16), peak(512)
    one = 4 * 3 * 32 * 32
    assert few > one
    assert many < few + one


def test_a_spool_keeps_memory_flat_and_reads_the_source_once() -> None:
    given_out: list[None] = []
    size = 64 * 64

    def endless() -> Iterator[Array]:
        buffer = np.zeros(size, np.float32)
        while True:
            buffer[:] = np.arange(size) + len(given_out)
            given_out.append(None)
            yield buffer

    form: Forms = {"x": ("float32", (size,))}
    data = open_for(form, endless, limit=256)
    first = iter(data)
    assert [next(first)["x"][0] for _ in range(3)] == [0, 1, 2]
    first.close()  # type: ignore[attr-defined]
    before = data.count
    tracemalloc.start()
    assert [sample["x"][0] for sample in data] == list(range(256))
    assert tracemalloc.get_traced_memory()[1] < 256 * size * 4 / 8
    tracemalloc.stop()
    assert [sample["x"][1] for sample in data] == list(range(1, 257))
    assert (before, data.count, len(given_out)) == (None, 256, 256)
    data.close()


def test_passes_over_a_spool_may_overlap() -> None:
    samples = made(ONE, 4)
    data = open_for(ONE, iter(samples))
    for left, right in zip(data, data, strict=True):
        np.testing.assert_array_equal(left["x"], right["x"])


_FORMS = st.tuples(
    st.sampled_from(sorted(HOLDABLE)), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
)
_FINITE = {"allow_nan": False, "allow_infinity": False}


@given(st.lists(_FORMS, min_size=1, max_size=3), st.integers(1, 4), st.booleans(), st.data())
def test_an_archive_reads_as_numpy_reads_it(
    forms: list[tuple[str, tuple[int, ...]]], count: int, packed: bool, data: st.DataObject
) -> None:
    named = {f"input/{i}": form for i, form in enumerate(forms)}
    stored: dict[str, Any] = {
        name: data.draw(
            arrays.arrays(dtype, (count, *shape), elements=_FINITE if dtype.startswith("float") else None)
        )
        for name, (dtype, shape) in named.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "calib.npz")
        (np.savez_compressed if packed else np.savez)(file, **stored)
        with np.load(file) as loaded:
            wanted = [{name: loaded[name][i] for name in named} for i in range(count)]
        found = open_for(named, file).samples()
        # Dull data are refused when the pass ends, which is not what is asked here.
        assert_equal((next(found) for _ in range(count)), wanted)
        found.close()  # type: ignore[attr-defined]


def test_whole_numbers_are_converted_and_it_is_said(tmp_path: Path) -> None:
    samples = made(TWO)
    narrow = [{**sample, "ids": sample["ids"].astype(np.int16)} for sample in samples]
    swapped = [{**sample, "x": sample["x"].astype(">f4")} for sample in samples]
    data = open_for(TWO, narrow)
    assert_equal(data, samples)
    assert data.notes == ("input 'ids': int16 in the samples, converted to int64 without loss",)
    other = open_for(TWO, as_archive(swapped, tmp_path))
    assert_equal(other, samples)
    assert other.notes == ()
    assert data.fingerprint == other.fingerprint


def test_files_in_fortran_order_are_read(tmp_path: Path) -> None:
    form: Forms = {"x": ("float32", (3, 4))}
    samples = made(form, 3)
    for number, sample in enumerate(samples):
        np.save(tmp_path / f"{number}.npy", np.asfortranarray(sample["x"]))
    assert_equal(open_for(form, tmp_path), samples)


def test_frozen_inputs_have_their_value_in_every_sample() -> None:
    samples, frozen = made(TWO), {"ids": np.array([7, 8, 9])}
    wanted = [{**sample, **frozen} for sample in samples]
    without = open_for(TWO, iter([sample["x"] for sample in samples]), frozen=frozen)
    assert_equal(without, wanted)
    assert_equal(without, wanted)
    assert open_for(TWO, wanted, frozen=frozen).fingerprint == without.fingerprint
    with pytest.raises(BadSamples, match="sample 0: input 'ids' is frozen to another value"):
        list(open_for(TWO, samples, frozen=frozen))


def test_a_limit_takes_the_first_and_says_so(tmp_path: Path) -> None:
    samples = made(TWO)
    data = open_for(TWO, as_archive(samples, tmp_path), limit=3)
    assert_equal(data, samples[:3])
    assert data.notes == ("the first 3 of 5 samples are used",)
    assert data.fingerprint == open_for(TWO, iter(samples), limit=3).fingerprint
    with pytest.raises(UsageError, match="0 samples"):
        open_for(TWO, samples, limit=0)


def test_progress_is_told_when_a_sample_is_done(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    data = open_for(ONE, as_archive(made(ONE, 2), tmp_path))
    for number, _ in enumerate(data.samples(lambda done, total: told.append((done, total)))):
        assert told[-1] == (number, 2)
    assert told == [(0, 2), (1, 2), (2, 2)]
    told.clear()
    live = open_for(ONE, iter(made(ONE, 2)))
    for _ in range(2):
        assert len(list(live.samples(lambda done, total: told.append((done, total))))) == 2
    assert [total for _, total in told] == [None, None, None, 2, 2, 2]


def test_a_callable_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_samples_for_a_test.py").write_text(
        "import numpy as np\n"
        "class Holder:\n"
        "    @staticmethod\n"
        "    def make():\n"
        "        for i in range(3):\n"
        "            yield np.full((1, 4), i, np.float32) + np.arange(4, dtype=np.float32)\n"
        "ready = list(Holder.make())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    wanted = [{"x": np.full((1, 4), i, np.float32) + np.arange(4, dtype=np.float32)} for i in range(3)]
    assert_equal(open_for(ONE, "my_samples_for_a_test:Holder.make"), wanted)
    assert_equal(open_for(ONE, "my_samples_for_a_test:ready"), wanted)
    for text in ("no_such_module_here:make", "my_samples_for_a_test:nothing"):
        with pytest.raises(UsageError, match="cannot be imported"):
            open_for(ONE, text)


def test_the_zoo_brings_its_own() -> None:
    name = "silero-vad"
    entry = zoo.entry(name)
    forms = {i.name: (i.dtype, i.shape) for i in entry.inputs}
    data = open_for(forms, f"zoo:{name}", limit=3)
    assert_equal(data, zoo.inputs(name, count=3, split="calib"))
    first = entry.inputs[0].name
    other = {**forms, first: (forms[first][0], (9, 9))}
    with pytest.raises(BadSamples, match="do not fit these sizes"):
        open_for(other, f"zoo:{name}")


def test_what_numpy_itself_writes_with_zip_tools_is_read(tmp_path: Path) -> None:
    """bzip2 and LZMA members are legal in a zip, whoever packed it."""
    samples = made(ONE)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        buffer = io.BytesIO()
        np.save(buffer, stacked(samples)["x"])
        with zipfile.ZipFile(tmp_path / "packed.npz", "w", method) as archive:
            archive.writestr("x.npy", buffer.getvalue())
        assert_equal(open_for(ONE, tmp_path / "packed.npz"), samples)
