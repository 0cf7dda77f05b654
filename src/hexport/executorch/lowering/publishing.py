"""From the worker's folder to the user's: files that appear whole or not at all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from hexport.errors import UsageError
from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.lowering.requests import LowerReply, LowerRequest
from hexport.executorch.pte.sidecar import Sidecar, file_sha256, write_sidecar
from hexport.whole_file import whole_or_absent

FORWARD = "forward"
QUANTISED = ".qdq.pt2"
"""The quantised program beside a ``.pte``."""


@dataclass(frozen=True)
class Made:
    """What the worker left in its folder, on its way to the user's."""

    description: Sidecar
    reply: LowerReply
    seconds: float

    def recorded(self, folder: Path, saver: Path) -> Lowered:
        if not folder.is_dir():
            raise UsageError("the Saver backend recorded nothing", next="keep the log with --native-log FILE")
        shutil.move(folder, saver)
        size = sum(file.stat().st_size for file in saver.rglob("*") if file.is_file())
        note = f"calls of QNN were recorded in {saver.name}; no .pte results from that"
        description = replace(self.description, notes=(note, *self.description.notes))
        return Lowered(saver, description, size, self.seconds, self.reply.seconds, {}, compiled=False)

    def published(self, request: LowerRequest, output: Path, *, sidecar: bool) -> Lowered:
        _publish(Path(request.output), output)
        quantised = {}
        for name, path in request.quantised.items():
            middle = "" if name == FORWARD else f".{name}"
            quantised[name] = output.with_name(f"{output.stem}{middle}{QUANTISED}")
            _publish(Path(path), quantised[name])
        description = replace(self.description, pte_sha256=file_sha256(output))
        written = write_sidecar(output, description) if sidecar else None
        return Lowered(
            output,
            description,
            output.stat().st_size,
            self.seconds,
            self.reply.seconds,
            self.reply.quantised_db,
            written,
            quantised,
        )


def _publish(made: Path, output: Path) -> None:
    with whole_or_absent(output) as part:
        shutil.copyfile(made, part)
