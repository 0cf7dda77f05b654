"""What ``torch_routes.py`` measured: kept as JSON as it comes, shown as a table and counts at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from results_file import ResultsFile

WIDTH = 170
PACKAGE, PTE = ROUTES = ("package", "pte")
ENOUGH_DB = 30.0
GATED = "16a8w"
"""The scheme that has to reach it, in both routes."""
OURS = "the benchmark failed"
UNSUPPORTED = ("HX432", "HX433")
"""The chip has no name in ExecuTorch, or not this scheme: nothing that a build could mend."""


@dataclass(frozen=True)
class Placed:
    """Who runs what."""

    npu_nodes: int
    cpu_nodes: int
    npu_macs: int
    cpu_macs: int
    parts: int
    """Graphs for the NPU."""
    left: tuple[str, ...] = ()
    """Operators on the CPU, with the reason."""

    @property
    def whole(self) -> bool:
        return not self.cpu_nodes


@dataclass(frozen=True)
class Measured:
    """One model through one route, in one scheme."""

    model: str
    scheme: str
    route: str
    seconds: float
    """Of the build, from an empty cache."""
    cpu_seconds: float | None = None
    """The same, of the processors, over all of its processes; None where the system does not tell."""
    db: float | str | None = None
    """Of the worst output in the median sample, beside eager; ``exact`` and ``broken``: the infinities."""
    worst_db: float | str | None = None
    """The same of the worst sample."""
    placed: Placed | None = None
    binary_bytes: int = 0
    """The code and weights for the NPU."""
    file_bytes: int = 0
    """All of it: the package with its CPU model, or the .pte."""
    code: str = ""
    """The beginning of a hash of hexport's own files: runs of different code are not of one run."""
    failure: str = ""

    @property
    def short(self) -> bool:
        """Whether it has to be better, and is not."""
        if self.scheme != GATED or self.failure.startswith(UNSUPPORTED):
            return False
        worst = self.worst_db
        return worst != "exact" and (not isinstance(worst, float) or worst < ENOUGH_DB)


class Results(ResultsFile[Measured]):
    """By model, scheme and route."""

    @classmethod
    def begin(cls, file: Path, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Empty, or with what ``file`` has."""
        results = cls(file, settings, lambda run: (run.model, run.scheme, run.route))
        if resume:
            results.go_on(_read)
        return results

    def has(self, model: str, scheme: str, route: str) -> bool:
        """Whether it was measured; where the benchmark itself failed it was not."""
        wanted = (model, scheme, route)
        return any(self.key(run) == wanted and not run.failure.startswith(OURS) for run in self.runs)


def _read(run: Mapping[str, Any]) -> Measured:
    placed = run["placed"]
    if placed is not None:
        placed = Placed(**{**placed, "left": tuple(placed["left"])})
    return Measured(**{**run, "placed": placed})


def show(runs: Sequence[Measured]) -> None:
    """Print it all on stdout: a line for a model and scheme, both routes side by side."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    columns = ("model", "scheme", "dB", "dB .pte", "NPU", "NPU .pte", "binary", "package", ".pte", "/binary",
               "build s", ".pte s", "/package", "CPU s", ".pte CPU s")  # fmt: skip
    table = Table(*columns, box=None, pad_edge=False, header_style="", collapse_padding=True)
    by = {(run.model, run.scheme, run.route): run for run in runs}
    for model, scheme in dict.fromkeys((run.model, run.scheme) for run in runs):
        table.add_row(model, scheme, *_cells(by.get((model, scheme, PACKAGE)), by.get((model, scheme, PTE))))
    console.print(table)
    for line in (*_LEGEND, *_left(runs), *_failures(runs), *_counts(runs)):
        console.print(line, soft_wrap=True)


_LEGEND = (
    "dB: worst output of the median test input (of the worst) on the simulator, beside PyTorch as it is.",
    "NPU: nodes that it runs, and its share of the MACs where that is not all. Sizes in MB.",
    "binary: what the NPU loads; the package has a CPU model beside it.",
    "CPU s: seconds of the processors, which depend less on what else runs.",
)


def _cells(package: Measured | None, pte: Measured | None) -> list[str]:
    return [
        _quality(package),
        _quality(pte),
        _placed(package),
        _placed(pte),
        _megabytes(package and package.binary_bytes),
        _megabytes(package and package.file_bytes),
        _megabytes(pte and pte.file_bytes),
        _ratio(pte and pte.file_bytes, package and package.binary_bytes),
        _seconds(package and package.seconds),
        _seconds(pte and pte.seconds),
        _ratio(pte and pte.seconds, package and package.seconds),
        _seconds(package and package.cpu_seconds),
        _seconds(pte and pte.cpu_seconds),
    ]


def _quality(run: Measured | None) -> str:
    if run is None:
        return ""
    if run.failure:
        return "fails"
    figure, worst = (f"{db:.1f}" if isinstance(db, float) else str(db) for db in (run.db, run.worst_db))
    return f"{figure} ({worst}) !" if run.short else f"{figure} ({worst})"


def _placed(run: Measured | None) -> str:
    if run is None or run.placed is None:
        return ""
    one = run.placed
    if one.whole:
        return f"all {one.npu_nodes}"
    macs = one.npu_macs + one.cpu_macs
    share = f", {100 * one.npu_macs / macs:.4g} %" if macs else ""
    return f"{one.npu_nodes}/{one.npu_nodes + one.cpu_nodes} in {one.parts}{share}"


def _left(runs: Sequence[Measured]) -> Iterator[str]:
    for run in runs:
        for words in run.placed.left if run.placed else ():
            yield f"{run.model} {run.scheme}, {run.route}, on the CPU: {words}"


def _failures(runs: Sequence[Measured]) -> Iterator[str]:
    for run in runs:
        if run.failure:
            yield f"{run.model} {run.scheme}, {run.route}: {run.failure}"


def _counts(runs: Sequence[Measured]) -> Iterator[str]:
    for route in dict.fromkeys(run.route for run in runs):
        mine = [run for run in runs if run.route == route]
        built = [run for run in mine if not run.failure]
        whole = sum(run.placed is not None and run.placed.whole for run in built)
        yield f"{route}: {len(built)} of {len(mine)} built, {whole} wholly on the NPU"
    gated = [run for run in runs if run.scheme == GATED]
    if gated:
        short = [f"{run.model} by {run.route} ({_quality(run).rstrip(' !')})" for run in gated if run.short]
        said = f"; short: {', '.join(short)}" if short else ""
        yield f"{GATED}: {len(gated) - len(short)} of {len(gated)} have {ENOUGH_DB:g} dB{said}"
    if len({run.code for run in runs if run.code}) > 1:
        yield "! hexport's code changed between these runs: measure all of them again to compare them"


def _megabytes(count: int | None) -> str:
    return f"{count / 1e6:.2f}" if count else ""


def _seconds(value: float | None) -> str:
    return f"{value:.0f}" if value else ""


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f} ×" if one and other else ""
