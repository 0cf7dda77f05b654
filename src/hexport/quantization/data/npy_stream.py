"""The .npy format as a stream: the header, then as much data as is asked for, never pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from hexport.quantization.data.sample import Array

# Version 3 exists for structured arrays with field names outside Latin-1; no model takes those.
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """What an .npy file says about its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_header(stream: IO[bytes]) -> Header:
    """The header; the stream then stands at the first byte of data."""
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f".npy format version {version} is not read here")
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which only pickle could read")
    if any(size < 0 for size in shape):
        raise ValueError(f"the header has a negative size: {shape}")
    return Header(shape, fortran, dtype)


def read_rest(stream: IO[bytes], header: Header) -> Array:
    """The whole array behind a header."""
    if header.fortran:
        array = fill(stream, header.dtype, header.shape[::-1]).transpose()
    else:
        array = fill(stream, header.dtype, header.shape)
    end(stream)
    return array


def fill(stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """A new array with the next bytes of the stream."""
    array: Array = np.empty(shape, dtype)
    space = raw_bytes(array)
    done = 0
    while done < len(space):
        piece = stream.read(min(len(space) - done, _PIECE))
        if not piece:
            raise EOFError(f"the data end {len(space) - done} bytes too early")
        space[done : done + len(piece)] = piece
        done += len(piece)
    return array


def end(stream: IO[bytes]) -> None:
    """Refuse what follows the data; at the end of a zip's member its checksum is compared as well."""
    if stream.read(1):
        raise ValueError("there are more bytes than the header says")


def raw_bytes(array: Array) -> memoryview:
    """The memory of a contiguous array, which a plain memoryview does not give for empty ones."""
    return array.reshape(-1).view(np.uint8).data
