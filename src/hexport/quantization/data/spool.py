"""Samples of a source that can be read only once, kept in a temporary file for the passes to come."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator

import numpy as np

from hexport.errors import BadSamples, HexportError, UsageError
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.npy_stream import fill, raw_bytes
from hexport.quantization.data.sample import Sample


class Spool:
    """Reads on where the source was left, and everything before that from the file.

    Fitted samples all have one size, so that the file needs no index.
    """

    def __init__(self, live: Iterator[Sample], fitting: Fitting) -> None:
        self._live = live
        self._fitting = fitting
        self._forms = {name: fitting.inputs[name] for name in fitting.free}
        sizes = (form.dtype.itemsize * int(np.prod(form.shape)) for form in self._forms.values())
        self._size = sum(sizes)
        self._kept = 0
        self._failure: HexportError | None = None
        try:
            self._file = tempfile.TemporaryFile(prefix="hexport-")  # noqa: SIM115 - lives as long as the spool
        except OSError as error:
            raise _unwritable(error) from error
        self.close = weakref.finalize(self, self._file.close)

    def read(self) -> Iterator[Sample]:
        """One pass from the beginning. Passes may overlap, in one thread."""
        number = 0
        while number < self._kept or self._take():
            yield self._load(number)
            number += 1

    def _take(self) -> bool:
        """Keep the next sample of the source; no if there is none."""
        if self._failure is not None:
            # A generator that raised is at its end; without this the next pass would look complete.
            raise self._failure
        try:
            sample = next(self._live, None)
        except HexportError as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = BadSamples(
                "the calibration data were interrupted and cannot be read on", why=type(error).__name__
            )
            raise
        if sample is None:
            return False
        self._store(sample)
        return True

    def _store(self, sample: Sample) -> None:
        try:
            self._file.seek(self._kept * self._size)
            for name in self._forms:
                self._file.write(raw_bytes(sample[name]))
            self._file.flush()
        except OSError as error:
            self._failure = _unwritable(error)
            raise self._failure from error
        self._kept += 1

    def _load(self, number: int) -> Sample:
        self._file.seek(number * self._size)
        kept = {name: fill(self._file, form.dtype, form.shape) for name, form in self._forms.items()}
        return {
            name: kept[name] if name in kept else self._fitting.frozen[name] for name in self._fitting.inputs
        }


def _unwritable(error: OSError) -> UsageError:
    return UsageError(
        "samples that can be read only once cannot be kept in a temporary file",
        why=str(error),
        next=f"make room in {tempfile.gettempdir()}, set TMPDIR to a larger disk, or use fewer samples",
    )
