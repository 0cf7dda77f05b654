"""What only all samples together show: how many, which content, and whether they say anything at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np

from hexport.errors import BadSamples
from hexport.quantization.data.npy_stream import raw_bytes
from hexport.quantization.data.sample import Array, Sample


def digest(sample: Sample) -> bytes:
    """A hash of names, types, shapes and bytes; the order of the names does not matter."""
    total = hashlib.sha256()
    for name in sorted(sample):
        array = sample[name]
        total.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        # The same numbers hash the same on a big-endian machine.
        plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        total.update(raw_bytes(plain))
    return total.digest()


class Survey:
    """One pass over the samples, watched."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self.count = 0
        self._inputs = tuple(inputs)
        self._hash = hashlib.sha256(b"hexport calibration 1\n")
        self._first = b""
        self._all_the_same = True
        self._flat: dict[str, list[int]] = {}
        """Input -> how many samples hold one number throughout, and the first such sample."""
        self._float: set[str] = set()

    @property
    def fingerprint(self) -> str:
        return self._hash.hexdigest()

    def add(self, sample: Sample) -> None:
        """Look at the next sample."""
        own = digest(sample)
        self._hash.update(own)
        self._first = self._first or own
        self._all_the_same &= own == self._first
        for name in self._inputs:
            self._look(name, sample[name])
        self.count += 1

    def _look(self, name: str, array: Array) -> None:
        """Count constant tensors; a lone number is none."""
        if array.dtype.kind == "f":
            self._float.add(name)
        if array.size > 1 and array.min() == array.max():
            self._flat.setdefault(name, [0, self.count])[0] += 1

    def finish(self, description: str) -> tuple[str, ...]:
        """Refuse what teaches nothing; what is merely odd is returned in words."""
        if not self.count:
            raise BadSamples(f"{description} holds no sample", next="give at least one; 32 or more are usual")
        always = {name for name, (times, _) in self._flat.items() if times == self.count}
        if always == set(self._inputs):
            raise BadSamples(
                f"{description}: input {min(always)!r} is constant in every sample, from sample 0 on",
                why="no input holds two different numbers, so no range can be measured",
                next="give inputs as the model meets them in use",
            )
        if self.count > 1 and self._all_the_same:
            raise BadSamples(
                f"{description}: samples 0 to {self.count - 1} are identical",
                why="they show one point only",
                next="give inputs that differ, or one sample if there is but one",
            )
        return tuple(self._remarks())

    def _remarks(self) -> Iterable[str]:
        if self.count == 1:
            yield "there is one sample only; ranges are measured on one point"
        for name, (times, first) in self._flat.items():
            # Ids and masks often are constant by nature.
            if name not in self._float:
                continue
            if times == self.count:
                yield f"input {name!r} is constant in every sample; if it always is, use --freeze"
            else:
                share = f"{times} of {self.count} samples, first in sample {first}"
                yield f"input {name!r} is constant in {share}"
