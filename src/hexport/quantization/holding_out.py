"""Data to fit with and data to judge with: never the same samples; and only what the model takes of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hexport.quantization.data import CalibrationData, Sample

_EVERY = 4
"""One sample of so many is held out."""


class Part:
    """One of the two parts, or with ``held=None`` both, streamed. Fewer than four samples are in both."""

    def __init__(self, data: CalibrationData, inputs: Collection[str], *, held: bool | None = None) -> None:
        self._data, self._inputs, self._held = data, inputs, held

    def __iter__(self) -> Iterator[Sample]:
        _ = self._held is None or too_few(self._data)  # which may have to read the data, so not halfway
        for number, sample in enumerate(self._data):
            if self.has(number):
                yield {name: array for name, array in sample.items() if name in self._inputs}

    def has(self, number: int) -> bool:
        """Whether the sample of that number in all of the data is in this part."""
        return self._held is None or too_few(self._data) or _is_held_out(number) == self._held


def _is_held_out(number: int) -> bool:
    """One of each four; not always the last of them, for data may come in turns: classes, cameras, angles."""
    turn = number // (2 * _EVERY)
    return number % _EVERY == (_EVERY - 1 + turn) % _EVERY


def too_few(data: CalibrationData) -> bool:
    """Whether nothing can be held out."""
    if data.count is None:
        # Reading counts them.
        _ = data.fingerprint
    return (data.count or 0) < _EVERY
