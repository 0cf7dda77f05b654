"""The measurements of a benchmark: a JSON file, whole after each of them, from which it can go on."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

Run = TypeVar("Run")


@dataclass
class ResultsFile(Generic[Run]):
    """What was measured so far, in one file, under one setting."""

    file: Path
    settings: Mapping[str, Any]
    key: Callable[[Run], object]
    """What a measurement is of: another of the same takes its place."""
    plain: Callable[[Run], dict[str, Any]] = asdict  # type: ignore[assignment]
    runs: list[Run] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def go_on(self, read: Callable[[Mapping[str, Any]], Run]) -> None:
        """Take over what the file has, if that was measured with the same settings."""
        if not self.file.is_file():
            return
        document = json.loads(self.file.read_text("utf-8"))
        if document["settings"] != dict(self.settings):
            told = f"{self.file.name} has other settings: {document['settings']}, not {dict(self.settings)}"
            print(told, file=sys.stderr)
            raise SystemExit(2)
        self.runs += map(read, document["runs"])

    def add(self, run: Run) -> None:
        """Keep it; threads may call this at once."""
        with self._lock:
            self.runs[:] = [*(old for old in self.runs if self.key(old) != self.key(run)), run]
            runs = [self.plain(one) for one in self.runs]
            document = {"schema_version": 1, "settings": self.settings, "runs": runs}
            self.file.parent.mkdir(exist_ok=True)
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
            part.replace(self.file)
