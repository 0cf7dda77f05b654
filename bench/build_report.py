"""What ``build.py`` measured: kept in a JSON file as it comes, shown as a table and counts at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 180
_BARS = {"second": 0.05, "buckets": 1.15}
"""What must hold: the second build against the first, all buckets against the largest."""


@dataclass(frozen=True)
class Measured:
    """One model built in one scheme."""

    model: str
    scheme: str
    onnx_bytes: int
    first_seconds: float
    failure: str = ""
    """Why there is no package."""
    met: bool = False
    chosen: str = ""
    lowest_db: float | str | None = None
    """Of the worst output, on the simulator; ``exact`` and ``broken`` are the infinities."""
    package_bytes: int = 0
    binary_bytes: int = 0
    peak_bytes: int | None = None
    second_seconds: float | None = None
    second_made: int = 0
    """Steps that the second build did not find in the cache."""
    hand_seconds: float | None = None
    """The bare steps: fixed shapes, stock quantising, ModelCompiler."""
    hand_bytes: int | None = None
    hand_failure: str = ""
    buckets: Mapping[str, Any] = field(default_factory=dict)
    """Bytes of the binaries of several buckets and of the largest alone."""

    @property
    def second(self) -> float | None:
        return None if self.second_seconds is None else self.second_seconds / self.first_seconds

    @property
    def shared(self) -> float | None:
        found = self.buckets
        return found["all_bytes"] / found["largest_bytes"] if found.get("largest_bytes") else None


@dataclass
class Results:
    """The measurements of one file, which is written whole after each of them."""

    file: Path
    settings: Mapping[str, Any]
    runs: list[Measured] = field(default_factory=list)

    @classmethod
    def begin(cls, file: Path, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Empty, or with what ``file`` has if that was measured with the same settings."""
        results = cls(file, settings)
        if resume and file.is_file():
            document = json.loads(file.read_text("utf-8"))
            if document["settings"] != dict(settings):
                print(f"{file.name} has other settings: {document['settings']}", file=sys.stderr)
                raise SystemExit(2)
            results.runs += [Measured(**run) for run in document["runs"]]
        return results

    def has(self, model: str, scheme: str) -> bool:
        return any((run.model, run.scheme) == (model, scheme) for run in self.runs)

    def add(self, run: Measured) -> None:
        """Keep it; the file is whole at any moment."""
        self.runs.append(run)
        runs = [asdict(one) for one in self.runs]
        document = {"schema_version": 1, "settings": self.settings, "runs": runs}
        self.file.parent.mkdir(exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
        part.replace(self.file)


def show(runs: Sequence[Measured]) -> None:
    """Print it all on stdout."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    columns = ("model", "asked", "built", "dB", "ONNX MB", "package", "binary", "binary/ONNX", "first s",
               "second s", "second/first", "by hand s", "build/hand", "hand's", "buckets/one")  # fmt: skip
    table = Table(*columns, box=None, pad_edge=False, header_style="", collapse_padding=True)
    for run in runs:
        table.add_row(*_cells(run))
    console.print(table)
    console.print(
        "dB: worst output on the simulator against the original in fp32 on the CPU. by hand: shapes"
    )
    console.print(
        "fixed, ONNX Runtime's recipe (16 bits by 8, for auto), ModelCompiler; nothing is verified."
    )
    for run in runs:
        for who, why in (("build", run.failure), ("by hand", run.hand_failure)):
            if why:
                console.print(f"{run.model} {run.scheme}, {who}: {why}", soft_wrap=True)
    for line in _counts(runs):
        console.print(line, soft_wrap=True)


def _cells(run: Measured) -> list[str]:
    built = "fails" if run.failure else run.chosen + ("" if run.met else ", short")
    quality = f"{run.lowest_db:.1f}" if isinstance(run.lowest_db, float) else str(run.lowest_db or "")
    by_hand = run.first_seconds / run.hand_seconds if run.hand_seconds and not run.hand_failure else None
    hand = "fails" if run.hand_failure else _plain(run.hand_seconds, "")
    return [
        run.model,
        run.scheme,
        built,
        quality,
        _megabytes(run.onnx_bytes),
        _megabytes(run.package_bytes),
        _megabytes(run.binary_bytes),
        _plain(run.binary_bytes / run.onnx_bytes if run.binary_bytes else None, " ×", 2),
        _plain(run.first_seconds, ""),
        _plain(run.second_seconds, "", 2),
        _plain(None if run.second is None else 100 * run.second, " %"),
        hand,
        _plain(by_hand, " ×"),
        _megabytes(run.hand_bytes or 0),
        _plain(run.shared, " ×", 2) or run.buckets.get("failure", "")[:20],
    ]


def _counts(runs: Sequence[Measured]) -> list[str]:
    lines = []
    for scheme in dict.fromkeys(run.scheme for run in runs):
        mine = [run for run in runs if run.scheme == scheme]
        built = [run for run in mine if not run.failure]
        seconds = [run.second for run in built if run.second is not None]
        fast = sum(share < _BARS["second"] for share in seconds)
        lines.append(
            f"{scheme}: {len(built)} of {len(mine)} built, {sum(run.met for run in built)} as asked for; "
            f"second build under 5 % of the first: {fast} of {len(seconds)}"
            + (f", median {100 * median(seconds):.1f} %" if seconds else "")
        )
        shared = {run.model: run.shared for run in built if run.shared is not None}
        if shared:
            told = ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in shared.items())
            lines.append(f"{scheme}: all buckets against the largest alone: {told} (at most 1.15 ×)")
    return lines


def _plain(value: float | None, unit: str, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}" if count else ""
