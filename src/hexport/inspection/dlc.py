"""A DLC, the container of Qualcomm's converters: who made it, what it holds, how large the weights are.

It is a zip of stored entries with a checksum of 0, which zip readers refuse, so only the table of contents
is taken from one.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hexport.inspection.dlc_graph import DlcGraph, read_graphs
from hexport.inspection.failures import DamagedFile
from hexport.inspection.section import Section, amount, section, signature

METADATA = "dlc.metadata"
"""What entries that tell how the file was made begin with."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MODEL, _WEIGHTS = "model", "model.params.bin"
_MOST_TEXT, _MOST_MODEL = 2**20, 2**28
_MOST_OPERATORS = 12


@dataclass(frozen=True)
class Dlc:
    """What the container says of itself."""

    entries: dict[str, int]
    """Name -> bytes."""
    tool: str
    sdk: str
    arguments: dict[str, str]
    graphs: tuple[str, ...]
    contents: tuple[DlcGraph, ...]
    """What is in each of the graphs."""
    weight_bytes: int
    caches: tuple[str, ...]
    """Code for chips that was put in beside the model."""
    note: str

    def sections(self) -> Iterator[Section]:
        """For people."""
        yield section(
            "",
            [
                ("made by", f"{self.tool or 'not said'}, QNN SDK {self.sdk or 'not said'}"),
                *((f"  {key}", value) for key, value in self.arguments.items()),
                ("graphs", ", ".join(self.graphs) or "not read"),
                *(("  operators", _operators(graph)) for graph in self.contents),
                ("weights", amount(self.weight_bytes)),
                ("compiled for", ", ".join(self.caches) or "no chip: it is the model only"),
                ("note", self.note),
            ],
        )
        for graph in self.contents:
            yield signature(f"Graph {graph.name}", graph.inputs, graph.outputs)
        yield section(
            "Entries", [(name, amount(size)) for name, size in self.entries.items()], "name", "size"
        )


def inspect_dlc(path: Path) -> Dlc:
    """Read the table of contents and the descriptions; weights are not loaded."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = {entry.filename: entry for entry in archive.infolist()}
            history = _history(
                [_read(file, entry) for name, entry in entries.items() if name.startswith(METADATA)]
            )
            contents = read_graphs(_read(file, entries[_MODEL], _MOST_MODEL)) if _MODEL in entries else ()
    except (OSError, zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
        raise DamagedFile(f"{path} is damaged", why=str(error), next="convert the model again") from error
    command = history.get("converterCommand", {})
    arguments = command.get("args", {})
    return Dlc(
        {name: entry.file_size for name, entry in entries.items()},
        str(command.get("tool", "")),
        str(command.get("converterVersion", "")),
        {str(k): str(v) for k, v in arguments.items()} if isinstance(arguments, dict) else {},
        tuple(graph.name for graph in contents),
        contents,
        entries[_WEIGHTS].file_size if _WEIGHTS in entries else 0,
        tuple(name.removeprefix("htp.cache.") for name in entries if name.startswith("htp.cache.")),
        "the format is not public: what is told was measured on files of SDK 2.47 and 2.51",
    )


def stored_at(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Where in the file the bytes of a stored entry begin."""
    file.seek(entry.header_offset)
    _, name_size, extra_size = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return entry.header_offset + _LOCAL_HEADER.size + int(name_size) + int(extra_size)


def _operators(graph: DlcGraph) -> str:
    most = sorted(graph.operators.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count} {op}" for op, count in most[:_MOST_OPERATORS])
    more = len(most) - _MOST_OPERATORS
    return f"{sum(graph.operators.values())}: {shown}" + (f" and {more} kinds more" if more > 0 else "")


def _read(file: IO[bytes], entry: zipfile.ZipInfo, most: int = _MOST_TEXT) -> bytes:
    """The bytes of a stored entry; empty when it is packed, or too large to be what it should be."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > most:
        return b""
    file.seek(stored_at(file, entry))
    return file.read(entry.file_size)


def _history(documents: list[bytes]) -> dict[str, Any]:
    """The first step of how it was made."""
    for document in documents:
        try:
            steps = json.loads(document).get("dlcGenerationInfo")
        except (ValueError, AttributeError, RecursionError):
            continue
        if isinstance(steps, list) and steps and isinstance(steps[0], dict):
            found = steps[0]
            return found if isinstance(found.get("converterCommand"), dict) else {}
    return {}
