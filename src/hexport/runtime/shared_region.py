"""Tensors between two processes through one file that both map: one copy in, one copy out.

The file lies in memory where the system has a place for that (``/dev/shm``), else in the temp folder. Its
name goes as soon as the other side has it open, so that nothing is left however the two end; Windows keeps
the name until both have closed it. A region never changes its size: a larger one takes its place.

Where a tensor lies is told by the other side, which may be broken: what lies not wholly inside is refused.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport.runtime.failures import RunError
from hexport.toolchain.protocol import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

PREFIX = "hexport-tensors-"
_MEMORY = Path("/dev/shm")
_ALIGNMENT = 64
_NUMBERS = re.compile(r"[<>|=]?[biufc]\d{1,2}")
_MOST_AXES = 32
"""Of an array, in every numpy that there is."""


@dataclass(frozen=True)
class Spot:
    """Where in the region a tensor is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Region:
    """A mapped file; ``path`` is where the other side finds it."""

    def __init__(self, path: Path, file: int, size: int) -> None:
        self.path, self.size = path, size
        try:
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)

    @classmethod
    def create(cls, size: int) -> Region:
        """A new one of at least ``size`` bytes, in memory if there is room, else on disk."""
        size = max(size, mmap.PAGESIZE)
        folders = [_MEMORY] if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else []
        for folder in folders:
            with contextlib.suppress(OSError, OverflowError):
                return cls._in(folder, size)
        try:
            return cls._in(Path(tempfile.gettempdir()), size)
        except (OSError, OverflowError) as error:
            raise RunError(
                f"there is no room for {size} bytes of tensors",
                why=str(error),
                next="make room in the temp folder, or run without isolation",
            ) from error

    @classmethod
    def _in(cls, folder: Path, size: int) -> Region:
        file, name = tempfile.mkstemp(prefix=f"{PREFIX}{os.getpid()}-", dir=folder)
        path = Path(name)
        try:
            if sys.platform == "linux":
                # Room is taken now: a full memory disk would otherwise end the process at the first write.
                os.posix_fallocate(file, 0, size)
            else:
                os.truncate(file, size)
            return cls(path, file, size)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(file)
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def attach(cls, path: Path, size: int) -> Region:
        """The same region, in the other process."""
        file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        found = os.fstat(file)
        if not (stat.S_ISREG(found.st_mode) and 0 < size <= found.st_size):
            os.close(file)
            raise ProtocolError(f"{path} is no region of {size} bytes")
        return cls(path, file, size)

    def forget_name(self) -> None:
        """Both sides have it: no file shall be left behind."""
        if sys.platform != "win32":
            self.path.unlink(missing_ok=True)

    def put(self, spots: Iterable[Spot], arrays: Mapping[str, Array]) -> None:
        for spot in spots:
            self.view(spot)[...] = arrays[spot.name]

    def view(self, spot: Spot) -> Array:
        """The tensor where it lies. It must be let go before the region is closed."""
        kind, count = _kind(spot.dtype), prod(spot.shape)
        crooked = spot.offset % _ALIGNMENT or min(spot.shape, default=0) < 0
        if crooked or len(spot.shape) > _MOST_AXES:
            raise ProtocolError(f"{spot} is no place of a tensor")
        if spot.offset < 0 or spot.offset + count * kind.itemsize > self.size:
            raise ProtocolError(f"{spot} is not inside a region of {self.size} bytes")
        try:
            return np.frombuffer(self._map, kind, count, spot.offset).reshape(spot.shape)
        except (ValueError, OverflowError) as error:  # sizes that no array has, beside a size of 0
            raise ProtocolError(f"{spot} is no place of a tensor: {error}") from error

    def take(self, spot: Spot) -> Array:
        """A copy, which outlives the region."""
        return self.view(spot).copy()

    def close(self) -> None:
        # A view that is still about keeps the memory until it goes itself.
        with contextlib.suppress(BufferError):
            self._map.close()
        with contextlib.suppress(OSError):  # on Windows the other side may be the last to close it
            self.path.unlink(missing_ok=True)


@lru_cache(64)
def _kind(name: str) -> np.dtype[Any]:
    """A type of numbers; nothing else has its value in the region."""
    try:
        if _NUMBERS.fullmatch(name):
            return np.dtype(name)
    except TypeError:
        pass
    raise ProtocolError(f"{name!r} is no type of numbers")


def lay_out(arrays: Mapping[str, Array], start: int = 0) -> tuple[tuple[Spot, ...], int]:
    """A place for each, one after the other from ``start`` on, and how much they need together."""
    spots, offset = [], start
    for name, array in arrays.items():
        spots.append(Spot(name, array.dtype.str, array.shape, offset))
        offset = _behind(offset, array)
    return tuple(spots), offset


def end_of(spots: Iterable[Spot], arrays: Mapping[str, Array]) -> int:
    """Where there is room behind them."""
    return max((_behind(spot.offset, arrays[spot.name]) for spot in spots), default=0)


def _behind(offset: int, array: Array) -> int:
    return offset + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
