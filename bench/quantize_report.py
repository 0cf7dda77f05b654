"""What ``quantize.py`` measured: kept in a JSON file as it comes, shown as tables and counts at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from results_file import ResultsFile

WIDTH = 200
SIDES = ("documented", "stock", "hexport")
_BARS = {"16a8w": (20.0, 30.0), "8a8w": (15.0,), "auto": (30.0,)}
"""Decibels that count, by scheme."""
_SAME_DB = 0.1
"""Closer than this is neither better nor worse."""
_LEGEND = (
    "documented: ONNX Runtime's recipe on the model with fixed shapes; stock: on the prepared model.",
    "dB: worst output, median over the test inputs, simulator against the original in fp32 on the CPU.",
    "where: nodes on the NPU + compute nodes on the CPU / partitions. s, MB: wall time and peak memory of",
    "quantising (hexport's with its trials on the simulator, preparing not included). size: the file's MB.",
)


@dataclass(frozen=True)
class Measured:
    """One model by one side in one scheme."""

    model: str
    side: str
    scheme: str
    seconds: float
    peak_bytes: int | None
    size_bytes: int | None
    failure: str = ""
    """Why there is no file, or why it does not run."""
    said: Mapping[str, Any] = field(default_factory=dict)
    sqnr_db: float | str | None = None
    """``exact`` and ``broken`` are the infinities; None when it did not run."""
    npu: int = 0
    cpu: int = 0
    partitions: int = 0
    precisions: Mapping[str, int] = field(default_factory=dict)
    """Compiled operators by what they compute in, in the compiler's words."""
    tasks: Mapping[str, float] = field(default_factory=dict)

    def failed(self, why: str) -> Measured:
        """The same, which does not run."""
        return replace(self, failure=why)

    def ran(self, **figures: Any) -> Measured:
        """The same with what the simulator gave."""
        return replace(self, **figures)

    @property
    def decibels(self) -> float:
        """Comparable: what did not run is worse than everything."""
        if isinstance(self.sqnr_db, str):
            return math.inf if self.sqnr_db == "exact" else -math.inf
        return -math.inf if self.sqnr_db is None else self.sqnr_db

    @property
    def quality(self) -> str:
        if self.failure:
            return "fails" if self.size_bytes else "no file"
        return f"{self.sqnr_db:.1f}" if isinstance(self.sqnr_db, float) else str(self.sqnr_db)

    @property
    def where(self) -> str:
        return "" if self.failure else f"{self.npu}+{self.cpu}/{self.partitions}"

    def __str__(self) -> str:
        memory = "" if self.peak_bytes is None else f", {self.peak_bytes / 1e6:.0f} MB"
        return f"{self.failure or f'{self.quality} dB, {self.where}'} in {self.seconds:.0f} s{memory}"


class Results(ResultsFile[Measured]):
    """By model, side and scheme."""

    @classmethod
    def begin(cls, file: Path, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Empty, or with what ``file`` has."""
        results = cls(file, settings, lambda run: (run.model, run.side, run.scheme))
        if resume:
            results.go_on(lambda run: Measured(**run))
        return results

    def has(self, model: str, side: str, scheme: str) -> bool:
        return any(self.key(run) == (model, side, scheme) for run in self.runs)


Cells = Mapping[tuple[str, str, str], Measured]


def show(runs: Sequence[Measured], names: Sequence[str]) -> None:
    """Print it all on stdout."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    cells = {(run.model, run.scheme, run.side): run for run in runs}
    rows = [(m, s) for m in names for s in _BARS if any((m, s, side) in cells for side in SIDES)]
    console.print(_figures(cells, rows))
    if any(run.tasks for run in runs):
        console.print(_tasks(cells, rows))
    for line in (*_LEGEND, "", *_failures(runs), "", *_counts(runs, len(names)), *_against(cells, rows)):
        console.print(line, soft_wrap=True)


def _figures(cells: Cells, rows: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="", collapse_padding=True)
    table.add_column("\nmodel", no_wrap=True)
    table.add_column("\nscheme", no_wrap=True)
    for title in SIDES:
        for label in (f"{title}\ndB", "\nwhere", "\ns", "\nMB", "\nsize"):
            table.add_column(label, justify="right", no_wrap=True)
    for model, scheme in rows:
        texts = [text for side in SIDES for text in _cell(cells.get((model, scheme, side)))]
        table.add_row(model, scheme, *texts)
    return table


def _cell(run: Measured | None) -> tuple[str, ...]:
    if run is None:
        return ("",) * 5
    memory = "" if run.peak_bytes is None else f"{run.peak_bytes / 1e6:.0f}"
    size = "" if run.size_bytes is None else f"{run.size_bytes / 1e6:.2f}"
    return run.quality, run.where, f"{run.seconds:.0f}", memory, size


def _tasks(cells: Cells, rows: Sequence[tuple[str, str]]) -> Table:
    table = Table("model", "scheme", "task", *SIDES, box=None, pad_edge=False, header_style="", title="")
    for model, scheme in rows:
        found = {side: cells[model, scheme, side] for side in SIDES if (model, scheme, side) in cells}
        for label in dict.fromkeys(label for run in found.values() for label in run.tasks):
            shares = [found[side].tasks.get(label) if side in found else None for side in SIDES]
            table.add_row(model, scheme, label, *("" if s is None else f"{100 * s:.1f} %" for s in shares))
    return table


def _failures(runs: Sequence[Measured]) -> Iterator[str]:
    for run in runs:
        if run.failure:
            yield f"{run.model} {run.scheme}, {run.side}: {run.failure}"


def _counts(runs: Sequence[Measured], total: int) -> Iterator[str]:
    for scheme, bars in _BARS.items():
        for side in SIDES:
            of = [run for run in runs if (run.side, run.scheme) == (side, scheme)]
            if of:
                counts = ", ".join(f"{sum(r.decibels >= bar for r in of)} ≥ {bar:g} dB" for bar in bars)
                middle = median(run.decibels for run in of)
                middle_text = f"{middle:.1f} dB" if math.isfinite(middle) else "no result"
                met = sum(bool(run.said.get("met")) for run in of)
                own = f", {met} by its own word" if scheme == "auto" else ""
                yield f"{scheme:6} {side:10} of {total}: {counts}{own}; median {middle_text}"


def _against(cells: Cells, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Where hexport is worse than the better of the two stock results, and what it costs."""
    pairs = []
    for model, scheme in rows:
        stocks = [cells[model, scheme, s] for s in ("documented", "stock") if (model, scheme, s) in cells]
        if stocks and (ours := cells.get((model, scheme, "hexport"))):
            pairs.append((ours, max(stocks, key=lambda run: run.decibels)))
    if not pairs:
        return
    worse = [
        f"{ours.model} {ours.scheme}: {ours.quality} {ours.where}, {stock.side} {stock.quality} {stock.where}"
        for ours, stock in pairs
        if ours.decibels < stock.decibels - _SAME_DB
    ]
    yield f"hexport worse than the better stock result: {len(worse)} of {len(pairs)}"
    yield from (f"    {line}" for line in worse)
    ratios = [
        (ours.seconds / stock.seconds, (ours.peak_bytes or 0) / stock.peak_bytes)
        for ours, stock in pairs
        if not stock.failure and stock.peak_bytes
    ]
    if ratios:
        times, memories = (median(side) for side in zip(*ratios, strict=True))
        yield f"hexport's time and memory over stock's, median: {times:.1f}×, {memories:.1f}×"
