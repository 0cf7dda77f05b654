"""An .npz file with an array an input, read sample by sample: memory does not grow with their number."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from hexport.errors import BadSamples
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.npy_stream import Header, end, fill, read_header
from hexport.quantization.data.sample import Found, reading

FORM = "give an .npz as numpy.savez writes it: one array an input, samples first"


def member_names(archive: zipfile.ZipFile) -> list[str]:
    """The arrays in an .npz. Their names are only compared, never used as paths."""
    names = [info.filename.removesuffix(".npy") for info in archive.infolist()]
    if len(set(names)) < len(names):
        raise ValueError("two arrays have the same name")
    return names


class Archive:
    """The leading axis of each array counts the samples."""

    once = False
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, fitting: Fitting) -> None:
        self.description = str(path)
        self._path = path
        self._fitting = fitting
        with ExitStack() as stack:
            self.count: int | None = self._check(self._open(stack))

    def read(self) -> Iterator[Found]:
        with ExitStack() as stack:
            members = self._open(stack)
            count = self._check(members)
            for number in range(count):
                with reading(f"{self._path}, sample {number}", form=FORM):
                    values = {
                        name: fill(stream, header.dtype, header.shape[1:])
                        for name, (stream, header) in members.items()
                    }
                    if number == count - 1:
                        for stream, _ in members.values():
                            end(stream)
                yield Found(values, self.description)

    def _open(self, stack: ExitStack) -> dict[str, tuple[IO[bytes], Header]]:
        """Every array's stream, behind its header."""
        with reading(self.description, form=FORM):
            archive = stack.enter_context(zipfile.ZipFile(self._path))
            names = member_names(archive)
        self._fitting.check_names(names, self.description)
        members = {}
        for name, info in zip(names, archive.infolist(), strict=True):
            with reading(f"{self._path}, input {name!r}", form=FORM):
                stream = stack.enter_context(archive.open(info))
                members[name] = stream, read_header(stream)
        return members

    def _check(self, members: dict[str, tuple[IO[bytes], Header]]) -> int:
        """Refuse by the headers what can be refused, before memory is taken; how many samples there are."""
        counts = {}
        for name, (_, header) in members.items():
            if not header.shape:
                raise BadSamples(f"{self._path}: {name!r} is a lone number, without samples", next=FORM)
            counts[name] = header.shape[0]
            self._fitting.check_form(name, header.dtype, header.shape[1:], f"{self._path}, sample 0")
            if header.fortran:
                raise BadSamples(
                    f"{self._path}: {name!r} is stored in Fortran order",
                    why="its samples are interleaved, so that none can be read without all others",
                    next="save numpy.ascontiguousarray(array)",
                )
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
            raise BadSamples(
                f"{self._path}: the inputs have different numbers of samples: {listed}", next=FORM
            )
        return min(counts.values())
