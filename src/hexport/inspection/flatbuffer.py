"""Reading FlatBuffers without their library: tables, vectors and text, each step within the file.

A file from elsewhere may hold any offset; one that leads out of the data is an error, not a crash.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

Data = bytes | mmap.mmap


class NotAFlatbuffer(ValueError):
    """An offset leads out of the file."""


@dataclass(frozen=True)
class Table:
    """A table at a place in the data; fields are known by their number."""

    data: Data
    at: int

    def _field(self, number: int) -> int | None:
        start = self.at - number_at("<i", self.data, self.at)
        size = number_at("<H", self.data, start)
        slot = 4 + 2 * number
        offset = number_at("<H", self.data, start + slot) if slot + 2 <= size else 0
        return self.at + offset if offset else None

    def number(self, number: int, form: str = "<I", default: int = 0) -> int:
        """A scalar field."""
        place = self._field(number)
        return default if place is None else number_at(form, self.data, place)

    def text(self, number: int) -> str:
        """A string field; empty when it is not there."""
        place = self._field(number)
        return "" if place is None else self._bytes(_follow(self.data, place)).decode("utf-8", "replace")

    def table(self, number: int) -> Table | None:
        """A field that is a table."""
        place = self._field(number)
        return None if place is None else Table(self.data, _follow(self.data, place))

    def tables(self, number: int) -> list[Table]:
        """A field that is a vector of tables."""
        return [Table(self.data, _follow(self.data, place)) for place in self._items(number, 4)]

    def numbers(self, number: int, form: str = "<i") -> list[int]:
        """A field that is a vector of scalars."""
        return [number_at(form, self.data, place) for place in self._items(number, struct.calcsize(form))]

    def span(self, number: int) -> tuple[int, int]:
        """Where the bytes of a field that is a vector of them begin, and how many there are."""
        items = self._items(number, 1)
        return items.start, len(items)

    def content(self, number: int) -> bytes:
        """The bytes themselves."""
        start, size = self.span(number)
        return self.data[start : start + size]

    def length(self, number: int) -> int:
        """How many items a vector field has."""
        place = self._field(number)
        return 0 if place is None else number_at("<I", self.data, _follow(self.data, place))

    def _items(self, number: int, size: int) -> range:
        place = self._field(number)
        if place is None:
            return range(0)
        start = _follow(self.data, place)
        count = number_at("<I", self.data, start)
        if start + 4 + count * size > len(self.data):
            raise NotAFlatbuffer(f"a list of {count} items at {start}")
        return range(start + 4, start + 4 + count * size, size)

    def _bytes(self, start: int) -> bytes:
        size = number_at("<I", self.data, start)
        if start + 4 + size > len(self.data):
            raise NotAFlatbuffer(f"a text of {size} bytes at {start}")
        return self.data[start + 4 : start + 4 + size]


def root(data: Data) -> Table:
    """The table that a buffer begins with."""
    return Table(data, _follow(data, 0))


def number_at(form: str, data: Data, place: int) -> int:
    """One number of the data."""
    if place < 0:
        raise NotAFlatbuffer(f"an offset leads to {place}")
    try:
        value: int = struct.unpack_from(form, data, place)[0]
    except struct.error as error:
        raise NotAFlatbuffer(str(error)) from error
    return value


def _follow(data: Data, place: int) -> int:
    return place + number_at("<I", data, place)
