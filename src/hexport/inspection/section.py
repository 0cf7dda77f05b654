"""What was found, in a form that every view can draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A table; without columns, pairs of a label and a value."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()


def section(title: str, rows: Iterable[Sequence[object]], *columns: str) -> Section:
    """A section of anything that can be written."""
    return Section(title, tuple(tuple(map(str, row)) for row in rows), columns)


@dataclass(frozen=True)
class TensorInfo:
    """An input or output, as far as the file tells."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None
    scale: float | None = None
    zero_point: int | None = None

    @property
    def row(self) -> tuple[str, str, str]:
        """Name, type, and how integers are to be read."""
        dims = "…" if self.dims is None else ",".join("?" if dim is None else str(dim) for dim in self.dims)
        reading = "" if self.scale is None else f"{self.scale:.9g} · (integer − {self.zero_point})"
        return self.name, f"{self.dtype}[{dims}]", reading


def signature(title: str, inputs: Iterable[TensorInfo], outputs: Iterable[TensorInfo]) -> Section:
    """Inputs and outputs; the column of real values is there when some tensor is quantised."""
    rows = [("in", *tensor.row) for tensor in inputs] + [("out", *tensor.row) for tensor in outputs]
    columns = ("", "name", "type", "real value")
    count = 4 if any(row[3] for row in rows) else 3
    return section(title, [row[:count] for row in rows], *columns[:count])


def amount(count: int) -> str:
    """Bytes for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
