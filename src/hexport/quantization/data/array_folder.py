"""A folder of arrays: a sample a file, or a sub-folder an input with a file a sample."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from hexport.errors import BadSamples
from hexport.quantization.data.archive import member_names
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.npy_stream import read_header, read_rest
from hexport.quantization.data.sample import Array, Found, reading

FORM = "give files as numpy.save and numpy.savez write them, one sample a file"


def _read_array(stream: IO[bytes], name: str, fitting: Fitting, where: str) -> Array:
    """The array in a stream, refused by its header if it does not fit: a wrong size takes no memory."""
    header = read_header(stream)
    fitting.check_form(name, header.dtype, header.shape, where)
    return read_rest(stream, header)


def _read_npy(path: Path, name: str, fitting: Fitting, number: int) -> Array:
    where = f"{path}, sample {number}"
    with reading(f"{where}, input {name!r}", form=FORM), path.open("rb") as stream:
        return _read_array(stream, name, fitting, where)


def _read_npz(path: Path, fitting: Fitting, number: int) -> dict[str, Array]:
    where = f"{path}, sample {number}"
    with reading(where, form=FORM), zipfile.ZipFile(path) as archive:
        names = member_names(archive)
        fitting.check_names(names, where)
        values = {}
        for name, info in zip(names, archive.infolist(), strict=True):
            with reading(f"{where}, input {name!r}", form=FORM), archive.open(info) as stream:
                values[name] = _read_array(stream, name, fitting, where)
        return values


class ArrayFolder:
    """One sample a file: an .npz with an array an input, or an .npy for a model with one input."""

    once = False

    def __init__(
        self, folder: Path, files: Sequence[Path], fitting: Fitting, notes: tuple[str, ...] = ()
    ) -> None:
        self.description = str(folder)
        self.count: int | None = len(files)
        self.notes = notes
        self._files = tuple(files)
        self._fitting = fitting
        bare = [path for path in files if path.suffix.lower() == ".npy"]
        if bare and len(fitting.free) > 1:
            raise BadSamples(
                f"{bare[0]}, sample {self._files.index(bare[0])}: an .npy file holds one array",
                why=f"the model has the inputs {', '.join(fitting.free)}",
                next="save each sample with numpy.savez, or make a sub-folder for each input",
            )

    def read(self) -> Iterator[Found]:
        for number, path in enumerate(self._files):
            if path.suffix.lower() == ".npz":
                yield Found(_read_npz(path, self._fitting, number), str(path))
            else:
                name = self._fitting.free[0]
                yield Found({name: _read_npy(path, name, self._fitting, number)}, str(path))


class InputFolders:
    """A sub-folder for each input; files of one name are one sample."""

    once = False

    def __init__(
        self, folder: Path, parts: Mapping[str, Sequence[Path]], fitting: Fitting, notes: tuple[str, ...] = ()
    ) -> None:
        self.description = str(folder)
        self.notes = notes
        self._parts = parts
        self._fitting = fitting
        fitting.check_names(parts, self.description)
        first, *others = parts
        self._files = tuple(path.name for path in parts[first])
        self.count: int | None = len(self._files)
        for other in others:
            self._check_same(folder, first, other)

    def read(self) -> Iterator[Found]:
        for number, row in enumerate(zip(*self._parts.values(), strict=True)):
            values = {
                name: _read_npy(path, name, self._fitting, number)
                for name, path in zip(self._parts, row, strict=True)
            }
            yield Found(values, f"{self.description}, {self._files[number]}")

    def _check_same(self, folder: Path, first: str, other: str) -> None:
        here, there = set(self._files), {path.name for path in self._parts[other]}
        for number, name in enumerate(sorted(here | there)):
            if name not in here or name not in there:
                lacking = other if name in here else first
                raise BadSamples(
                    f"{folder}, sample {number}: input {lacking!r} has no file {name}",
                    why="files of one name in the sub-folders are one sample",
                    next="give every sub-folder the same file names",
                )
