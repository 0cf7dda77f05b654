"""DLC files as they are handed out: named after the model, without a date in them, and read back."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

from hexport.compiling.dlc_outcome import DlcFile
from hexport.inspection.dlc import METADATA, inspect_dlc, stored_at

SUFFIX = ".dlc"
_DATE = re.compile(rb'("timestamp": ")\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"')
_NO_DATE = rb'\g<1>1980-01-01 00:00:00 UTC"'
"""The zip's own first day. With a date the same model would give other bytes every second."""


def name_files(written: Path, workdir: Path, name: str) -> tuple[DlcFile, ...]:
    """The files under the model's name; copies, because the library lets no one else read its own."""
    found = sorted(written.glob(f"*{SUFFIX}"), key=lambda path: _number(path.stem))
    files = []
    for number, path in enumerate(found):
        own = workdir / (f"{name}{SUFFIX}" if len(found) == 1 else f"{name}.{number}{SUFFIX}")
        shutil.copyfile(path, own)
        _remove_dates(own)
        files.append(DlcFile(own, own.stat().st_size, inspect_dlc(own)))
    return tuple(files)


def _number(stem: str) -> tuple[int, str]:
    """Graphs are numbered at the end of their names, in the order of the partitions."""
    last = stem.rpartition("_")[2]
    return (int(last) if last.isdecimal() else 0), stem


def _remove_dates(path: Path) -> None:
    """Entries are not packed and have no checksum, so a text of the same length can take their place."""
    with zipfile.ZipFile(path) as archive, path.open("r+b") as file:
        for entry in archive.infolist():
            if entry.filename.startswith(METADATA) and entry.compress_type == zipfile.ZIP_STORED:
                start = stored_at(file, entry)
                file.seek(start)
                text = _DATE.sub(_NO_DATE, file.read(entry.file_size))
                file.seek(start)
                file.write(text)
