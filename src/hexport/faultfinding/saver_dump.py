"""What QNN's Saver backend wrote: a C program that makes the same calls again, and the data that it reads.

The program reads its data with ``fread``, call by call, so the two files must agree byte for byte; and it
ends as every program ends. A dump that was cut off anywhere fails one of these (measured with SDK 2.47 and
2.51).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hexport.backend.failures import BackendError

FOLDER = "saver_output"
"""Where the Saver writes, in the worker's current folder."""
PROGRAM, DATA = "saver_output.c", "params.bin"
_READS = re.compile(r"\bfread\([^,]*, (\d+), (\d+), fp\)")
_CALL = re.compile(r"\binterface\.(\w+)\(")
_CREATED = re.compile(r'\binterface\.graphCreate\(\w+, "((?:[^"\\]|\\.)*)"')


class RecordingIncomplete(BackendError):
    """The Saver backend wrote no calls, or not all of them."""

    code = "HX903"


@dataclass(frozen=True)
class SaverDump:
    """A whole dump."""

    program: Path
    data: Path
    graphs: tuple[str, ...]
    calls: dict[str, int]
    """QNN function -> how often it is called."""


def read_dump(folder: Path, graphs: int) -> SaverDump:
    """The dump in ``folder``, if it is whole and makes as many ``graphs``."""
    program, data = folder / PROGRAM, folder / DATA
    for file in (program, data):
        if not file.is_file():
            raise _incomplete(f"it did not write {file.name}")
    calls: Counter[str] = Counter()
    made: list[str] = []
    read, last = 0, ""
    for line in _lines(program):
        last = line.strip() or last
        if "interface." in line:
            calls.update(_CALL.findall(line))
            made += _CREATED.findall(line)
        elif "fread(" in line:
            read += sum(int(size) * int(count) for size, count in _READS.findall(line))
    if last != "}":
        raise _incomplete(f"{PROGRAM} ends in the middle")
    if read != data.stat().st_size:
        raise _incomplete(f"{PROGRAM} reads {read} bytes, and {DATA} has {data.stat().st_size}")
    if not graphs or len(made) != graphs or calls["graphFinalize"] != graphs:
        done = f"{len(made)} graphs were made and {calls['graphFinalize']} finalised"
        raise _incomplete(f"{done}; the provider has {graphs}")
    return SaverDump(program, data, tuple(made), dict(sorted(calls.items())))


def _lines(program: Path) -> Iterator[str]:
    with program.open(encoding="utf-8", errors="replace") as lines:
        yield from lines


def _incomplete(why: str) -> RecordingIncomplete:
    return RecordingIncomplete(
        "the Saver backend did not record everything",
        why=why,
        next="nothing was kept; --native-log FILE keeps what the libraries said",
    )
