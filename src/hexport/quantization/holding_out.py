"""Data to fit with and data to judge with: never the same samples."""

from __future__ import annotations

from collections.abc import Iterator

from hexport.quantization.data import CalibrationData, Sample

_EVERY = 4
"""Every fourth sample is held out."""


class Part:
    """One of the two parts, streamed. Of fewer than four samples all are in both, which is said."""

    def __init__(self, data: CalibrationData, *, held: bool) -> None:
        self._data, self._held = data, held

    def __iter__(self) -> Iterator[Sample]:
        # Reading it counts it, if nothing has yet.
        assert self._data.fingerprint
        few = (self._data.count or 0) < _EVERY
        for number, sample in enumerate(self._data):
            if few or (number % _EVERY == _EVERY - 1) == self._held:
                yield sample
