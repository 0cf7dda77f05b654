"""What flows through this room: samples as they are found, and as they are handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from hexport.errors import BadSamples, HexportError

Array = NDArray[Any]
Sample = dict[str, Array]
"""One run of the model: an array for each of its inputs."""

Progress = Callable[[int, int | None], None]
"""Told how many samples are done and how many there are, or None while nobody knows."""


@dataclass(frozen=True, slots=True)
class Found:
    """A sample as its source has it, before anything about it is believed."""

    values: Mapping[str, object]
    origin: str
    """Where it is from, for messages: a file, or the name of a callable."""


class Source(Protocol):
    """A place that samples are read from, one after the other."""

    description: str
    count: int | None
    notes: tuple[str, ...]
    once: bool
    """A second reading would give nothing, or something else."""

    def read(self) -> Iterator[Found]: ...


@contextmanager
def reading(where: str, *, form: str) -> Iterator[None]:
    """Whatever goes wrong with a file in here is said as a defect of that file."""
    try:
        yield
    except HexportError:
        raise
    # Zip, each decompressor, numpy's header and each image format have errors of their own.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise BadSamples(f"{where} cannot be read", why=reason, next=form) from error
