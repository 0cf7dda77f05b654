"""A DLC, the container of Qualcomm's converters: who made it, what it holds, how large the weights are.

It is a zip of stored entries with a checksum of 0, which zip readers refuse, so only the table of contents
is taken from one. The format has no public description: what is told here was measured on files of SDK 2.51.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.inspection.failures import DamagedFile
from hexport.inspection.flatbuffer import NotAFlatbuffer, number_at, root
from hexport.inspection.section import Section, amount, section

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MODEL, _WEIGHTS = "model", "model.params.bin"
_PREFIX = 8
_MOST_TEXT, _MOST_MODEL = 2**20, 2**28


@dataclass(frozen=True)
class Dlc:
    """What the container says of itself."""

    entries: dict[str, int]
    """Name -> bytes."""
    tool: str
    sdk: str
    arguments: dict[str, str]
    graphs: tuple[str, ...]
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
                ("weights", amount(self.weight_bytes)),
                ("compiled for", ", ".join(self.caches) or "no chip: it is the model only"),
                ("note", self.note),
            ],
        )
        yield section(
            "Entries", [(name, amount(size)) for name, size in self.entries.items()], "name", "size"
        )


def inspect_dlc(path: Path) -> Dlc:
    """Read the table of contents and the descriptions; weights are not loaded."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entries = {entry.filename: entry for entry in archive.infolist()}
            history = _history(
                [_read(file, entry) for name, entry in entries.items() if name.startswith("dlc.metadata")]
            )
            graphs = _graphs(_read(file, entries[_MODEL], _MOST_MODEL)) if _MODEL in entries else ()
    except (OSError, zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
        raise DamagedFile(f"{path} is damaged", why=str(error), next="convert the model again") from error
    command = history.get("converterCommand", {})
    arguments = command.get("args", {})
    return Dlc(
        {name: entry.file_size for name, entry in entries.items()},
        str(command.get("tool", "")),
        str(command.get("converterVersion", "")),
        {str(k): str(v) for k, v in arguments.items()} if isinstance(arguments, dict) else {},
        graphs,
        entries[_WEIGHTS].file_size if _WEIGHTS in entries else 0,
        tuple(name.removeprefix("htp.cache.") for name in entries if name.startswith("htp.cache.")),
        "the format is not public: operators and tensors are not read",
    )


def _read(file: Any, entry: zipfile.ZipInfo, most: int = _MOST_TEXT) -> bytes:
    """The bytes of a stored entry; empty when it is packed, or too large to be what it should be."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > most:
        return b""
    file.seek(entry.header_offset)
    _, name_size, extra_size = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    file.seek(name_size + extra_size, 1)
    data: bytes = file.read(entry.file_size)
    return data


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


def _graphs(model: bytes) -> tuple[str, ...]:
    """Names of the graphs: the root's first field has a table of each, whose first field is its name."""
    try:
        if number_at("<I", model, _PREFIX + 4) != int.from_bytes(b"NETD", "little"):
            return ()
        return tuple(table.text(0) for table in root(model[_PREFIX:]).tables(0))
    except NotAFlatbuffer:
        return ()
