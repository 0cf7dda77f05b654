"""The structure of a ``.pte``: its methods, what they run, and where the data of their delegates lies.

Read from the file itself (schema ET12 of executorch 1.5), without executorch. Segments are not loaded.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hexport.inspection.failures import DamagedFile
from hexport.inspection.flatbuffer import NotAFlatbuffer, Table, number_at, root

KNOWN = b"ET12"
QNN = "QnnBackend"
"""What ExecuTorch calls the delegate for Qualcomm's chips."""
_COMPILE_SPEC = "qnn_compile_spec"
_EXTENDED, _EXTENDED_AT, _SEGMENTS_AT = b"eh00", 8, 24
_TENSOR = 5
_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_IN_SEGMENT = 1
_MOST_METHODS = 1000
# c10::ScalarType, as numpy spells it.
_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
    11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class PteTensor:
    """An input or output. A ``.pte`` has numbers for them, and no names."""

    dtype: str
    sizes: tuple[int, ...]
    """Of a tensor whose sizes may vary: the largest."""
    order: tuple[int, ...] = ()
    """How its axes lie in memory, from the outermost to the innermost."""
    varies: bool = False
    unbounded: bool = False


@dataclass(frozen=True)
class PteDelegate:
    """A part of a method that another backend runs."""

    backend: str
    start: int
    """Where in the file its data begins."""
    size: int
    spec: bytes = b""
    """QNN's options; empty for other backends."""


@dataclass(frozen=True)
class PteMethod:
    """One entry point."""

    name: str
    inputs: tuple[PteTensor | None, ...]
    """None: not a tensor."""
    outputs: tuple[PteTensor | None, ...]
    input_values: tuple[int, ...]
    """The numbers of the values that the inputs are."""
    output_values: tuple[int, ...]
    operators: tuple[str, ...]
    """Those that ExecuTorch's own kernels run: ``aten::sin.out``."""
    kernel_calls: int
    delegates: tuple[PteDelegate, ...]
    delegate_calls: tuple[tuple[int, tuple[int, ...]], ...]
    """Which delegate, and the numbers of the values that go in and out of it."""
    between: Mapping[int, PteTensor | None] = field(default_factory=dict)
    """By their number, the values that go in and out of delegates."""


@dataclass(frozen=True)
class PteProgram:
    """The file."""

    path: Path
    identifier: str
    version: int
    methods: tuple[PteMethod, ...]
    segments: tuple[int, ...]
    """Sizes of the data behind the program: weights and what delegates compiled."""

    @property
    def known(self) -> bool:
        """Whether its schema is the one that is read here; of others nothing but the identifier is told."""
        return self.identifier.encode() == KNOWN


def is_pte(path: str | Path) -> bool:
    """By its content; a file that is called ``.pte`` and is none is told so when it is read."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return (head[4:6] == b"ET" and head[6:8].isdigit()) or Path(path).suffix.lower() == ".pte"


def read_program(path: Path) -> PteProgram:
    """The structure, or the error that says what is wrong with the file."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise _damaged(path, str(error)) from error
    with data:
        identifier = data[4:8].decode("ascii", "replace")
        if not identifier.startswith("ET"):
            raise _damaged(path, f"it begins with {data[:8]!r}")
        if data[4:8] != KNOWN:
            return PteProgram(path, identifier, 0, (), ())
        try:
            return _program(path, identifier, data)
        except (NotAFlatbuffer, struct.error) as error:
            raise _damaged(path, f"it begins like a .pte, and then {error}") from error


def read_known(path: Path) -> PteProgram:
    """The same, for those who need more than the identifier."""
    program = read_program(path)
    if not program.known:
        raise DamagedFile(
            f"{path} is a .pte of schema {program.identifier}",
            why=f"of {KNOWN.decode()} alone the layout is known here",
            next="lower the model again with executorch 1.5.1",
        )
    return program


def _program(path: Path, identifier: str, data: mmap.mmap) -> PteProgram:
    program = root(data)
    if program.length(1) > _MOST_METHODS:
        raise NotAFlatbuffer(f"claims {program.length(1)} methods")
    base = number_at("<Q", data, _SEGMENTS_AT) if data[_EXTENDED_AT : _EXTENDED_AT + 4] == _EXTENDED else 0
    segments = [(base + table.number(0, "<Q"), table.number(1, "<Q")) for table in program.tables(4)]
    inline = program.tables(3)
    methods = tuple(_method(plan, segments, inline) for plan in program.tables(1))
    return PteProgram(path, identifier, program.number(0), methods, tuple(size for _, size in segments))


def _method(plan: Table, segments: list[tuple[int, int]], inline: list[Table]) -> PteMethod:
    values = plan.tables(2)
    inputs, outputs = tuple(plan.numbers(3)), tuple(plan.numbers(4))
    steps = [step for chain in plan.tables(5) for step in chain.tables(2)]
    kinds = [step.number(0, "<B") for step in steps]
    found = [step.table(1) for step, kind in zip(steps, kinds, strict=True) if kind == _DELEGATE_CALL]
    calls = [(call.number(0), tuple(call.numbers(1))) for call in found if call is not None]
    return PteMethod(
        plan.text(0),
        tuple(_tensor(values, index) for index in inputs),
        tuple(_tensor(values, index) for index in outputs),
        inputs,
        outputs,
        tuple(".".join(filter(None, (op.text(0), op.text(1)))) for op in plan.tables(6)),
        kinds.count(_KERNEL_CALL),
        tuple(_delegate(table, segments, inline) for table in plan.tables(7)),
        tuple(calls),
        {index: _tensor(values, index) for _, used in calls for index in used},
    )


def _tensor(values: list[Table], index: int) -> PteTensor | None:
    if not 0 <= index < len(values):
        raise NotAFlatbuffer(f"value {index} of {len(values)}")
    tensor = values[index].table(1) if values[index].number(0, "<B") == _TENSOR else None
    if tensor is None:
        return None
    code, dynamism = tensor.number(0, "<b"), tensor.number(8, "<b")
    return PteTensor(
        _TYPES.get(code, f"type{code}"),
        tuple(tensor.numbers(2)),
        tuple(tensor.numbers(3, "<B")),
        varies=dynamism != 0,
        unbounded=dynamism == 2,
    )


def _delegate(table: Table, segments: list[tuple[int, int]], inline: list[Table]) -> PteDelegate:
    backend, where = table.text(0), table.table(1)
    start, size = 0, 0
    if where is not None:
        index = where.number(1)
        places = segments if where.number(0, "<b") == _IN_SEGMENT else [one.span(0) for one in inline]
        if index >= len(places):
            raise NotAFlatbuffer(f"data {index} of {len(places)}")
        start, size = places[index]
        if start + size > len(table.data):
            raise NotAFlatbuffer(f"{size} bytes of {backend}'s data at {start}, where the file ends before")
    specs = {spec.text(0): spec for spec in table.tables(2)} if backend == QNN else {}
    return PteDelegate(
        backend, start, size, specs[_COMPILE_SPEC].content(1) if _COMPILE_SPEC in specs else b""
    )


def _damaged(path: Path, why: str) -> DamagedFile:
    return DamagedFile(f"{path} is damaged, or is no .pte", why=why, next="export it again")
