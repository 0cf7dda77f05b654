"""An ExecuTorch program (.pte): its methods, their signatures, operators and delegates.

Read from the file's own structure (schema ET12 of executorch 1.5), without executorch. What is inside of a
delegate's data is not looked at.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexport.inspection.failures import DamagedFile
from hexport.inspection.flatbuffer import NotAFlatbuffer, Table, root
from hexport.inspection.section import Section, TensorInfo, amount, section, signature

KNOWN = b"ET12"
_TENSOR, _DYNAMIC = 5, 2
_MOST_METHODS = 1000
# c10::ScalarType, as numpy spells it.
_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
    11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """One entry point."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[str, ...]
    """Those that run outside of delegates."""
    delegates: dict[str, int]
    """Backend -> how many parts it runs."""


@dataclass(frozen=True)
class Pte:
    """What the file says of itself."""

    identifier: str
    version: int
    methods: tuple[Method, ...]
    segment_bytes: tuple[int, ...]
    """Sizes of the data behind the program: weights and what delegates compiled."""
    note: str

    def sections(self) -> Iterator[Section]:
        """For people."""
        segments = f"{len(self.segment_bytes)}, {amount(sum(self.segment_bytes))}"
        yield section("", [("schema", f"{self.identifier} {self.version}"), ("data segments", segments)])
        for method in self.methods:
            yield signature(f"Method {method.name}", method.inputs, method.outputs)
            yield section("", [("delegate", f"{name} ×{count}") for name, count in method.delegates.items()])
            if method.operators:
                yield section("", [("outside of delegates", ", ".join(method.operators))])
        yield section("", [("note", self.note)])


def inspect_pte(path: Path) -> Pte:
    """Read the program; segments are not loaded."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    identifier = data[4:8].decode("ascii", "replace")
    if data[4:8] != KNOWN:
        return Pte(identifier, 0, (), (), f"schema {identifier} is not known here; {KNOWN.decode()} is")
    try:
        program = root(data)
        if program.length(1) > _MOST_METHODS:
            raise NotAFlatbuffer(f"claims {program.length(1)} methods")  # noqa: TRY301 - as any other damage
        methods = tuple(_method(plan) for plan in program.tables(1))
        segments = tuple(segment.number(1, "<Q") for segment in program.tables(4))
    except NotAFlatbuffer as error:
        raise DamagedFile(
            f"{path} is damaged", why=f"it begins like a .pte, and then {error}", next="export it again"
        ) from error
    note = "read without executorch: what is inside of delegates was not looked at"
    return Pte(identifier, program.number(0), methods, segments, note)


def _method(plan: Table) -> Method:
    values = plan.tables(2)
    return Method(
        plan.text(0),
        tuple(_value(values, index, f"input {n}") for n, index in enumerate(plan.numbers(3))),
        tuple(_value(values, index, f"output {n}") for n, index in enumerate(plan.numbers(4))),
        tuple(".".join(filter(None, (op.text(0), op.text(1)))) for op in plan.tables(6)),
        dict(Counter(delegate.text(0) for delegate in plan.tables(7))),
    )


def _value(values: list[Table], index: int, name: str) -> TensorInfo:
    if not 0 <= index < len(values):
        raise NotAFlatbuffer(f"value {index} of {len(values)}")
    tensor = values[index].table(1) if values[index].number(0, "<B") == _TENSOR else None
    if tensor is None:
        return TensorInfo(name, "not a tensor", None)
    code = tensor.number(0, "<b")
    sizes = None if tensor.number(8, "<b") == _DYNAMIC else tuple(tensor.numbers(2))
    return TensorInfo(name, _TYPES.get(code, f"type{code}"), sizes)
