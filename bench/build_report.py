"""What ``build.py`` measured: kept in a JSON file as it comes, shown as a table and counts at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from results_file import ResultsFile

WIDTH = 220
OURS = "the benchmark itself"
"""What the reason begins with where hexport is not to blame."""
_BARS = {"second": 0.05, "buckets": 1.15}
"""What must hold: the second build against the first, all buckets against the largest."""


@dataclass(frozen=True)
class Measured:
    """One model built in one scheme."""

    model: str
    scheme: str
    onnx_bytes: int
    first_seconds: float
    first_cpu_seconds: float | None = None
    """Of the processors, over all of its processes; None where the system does not tell."""
    code: str = ""
    """The beginning of a hash of hexport's own files: runs of different code are not of one run."""
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
    second_cpu_seconds: float | None = None
    second_failure: str = ""
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
        return _ratio(self.second_seconds, self.first_seconds)

    @property
    def second_cpu(self) -> float | None:
        return _ratio(self.second_cpu_seconds, self.first_cpu_seconds)

    @property
    def package(self) -> float | None:
        return _ratio(self.package_bytes, self.onnx_bytes)

    @property
    def hand(self) -> float | None:
        return None if self.hand_failure else _ratio(self.first_seconds, self.hand_seconds)

    @property
    def shared(self) -> float | None:
        return _ratio(self.buckets.get("all_bytes"), self.buckets.get("largest_bytes"))

    @property
    def shared_package(self) -> float | None:
        return _ratio(self.buckets.get("all_package_bytes"), self.buckets.get("largest_package_bytes"))


class Results(ResultsFile[Measured]):
    """By model and scheme."""

    @classmethod
    def begin(cls, file: Path, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Empty, or with what ``file`` has."""
        results = cls(file, settings, lambda run: (run.model, run.scheme))
        if resume:
            results.go_on(lambda run: Measured(**run))
        return results

    def has(self, model: str, scheme: str) -> bool:
        """Whether it was measured; where the benchmark itself failed it was not."""
        return any(self.key(run) == (model, scheme) and not run.failure.startswith(OURS) for run in self.runs)


def show(runs: Sequence[Measured]) -> None:
    """Print it all on stdout."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    columns = ("model", "asked", "built", "dB", "ONNX MB", "package", "/ONNX", "binary", "/ONNX", "first s",
               "second s", "/first", "CPU /first", "by hand s", "build/hand", "hand's MB", "buckets",
               "binaries/one", "packages/one")  # fmt: skip
    table = Table(*columns, box=None, pad_edge=False, header_style="", collapse_padding=True)
    for run in runs:
        table.add_row(*_cells(run))
    console.print(table)
    for line in _LEGEND:
        console.print(line, soft_wrap=True)
    for run in runs:
        for who, why in _failures(run):
            console.print(f"{run.model} {run.scheme}, {who}: {why}", soft_wrap=True)
    for line in _counts(runs):
        console.print(line, soft_wrap=True)


_LEGEND = (
    "dB: worst output on the simulator against the original in fp32 on the CPU.",
    "CPU /first: the same ratio in seconds of the processors.",
    "by hand: shapes fixed, ONNX Runtime's recipe (16 bits by 8, for auto), ModelCompiler; not verified.",
    "buckets: sizes in one package; binaries and packages against those of the largest size alone; none",
    "where the model takes one size, or the zoo has no calibration inputs of another.",
)


def _failures(run: Measured) -> list[tuple[str, str]]:
    every = (
        ("build", run.failure),
        ("second build", run.second_failure),
        ("buckets", run.buckets.get("failure", "")),
        ("by hand", run.hand_failure),
    )
    return [(who, why) for who, why in every if why]


def _cells(run: Measured) -> list[str]:
    built = "fails" if run.failure else run.chosen + ("" if run.met else ", short")
    quality = f"{run.lowest_db:.1f}" if isinstance(run.lowest_db, float) else str(run.lowest_db or "")
    return [
        run.model,
        run.scheme,
        built,
        quality,
        _megabytes(run.onnx_bytes),
        _megabytes(run.package_bytes),
        _plain(run.package, " ×", 2),
        _megabytes(run.binary_bytes),
        _plain(_ratio(run.binary_bytes, run.onnx_bytes), " ×", 2),
        _plain(run.first_seconds or None, ""),
        "fails" if run.second_failure else _plain(run.second_seconds, "", 2),
        _percent(run.second),
        _percent(run.second_cpu),
        "fails" if run.hand_failure else _plain(run.hand_seconds, ""),
        _plain(run.hand, " ×"),
        _megabytes(run.hand_bytes or 0),
        run.buckets.get("sizes", ""),
        "fails" if run.buckets.get("failure") else _plain(run.shared, " ×", 2),
        _plain(run.shared_package, " ×", 2),
    ]


def _counts(runs: Sequence[Measured]) -> list[str]:
    lines = []
    for scheme in dict.fromkeys(run.scheme for run in runs):
        mine = [run for run in runs if run.scheme == scheme]
        built = [run for run in mine if not run.failure]
        again = sum(run.second_made > 0 for run in built)
        told = [
            f"{len(built)} of {len(mine)} built, {sum(run.met for run in built)} as asked for; "
            f"{again} second builds made a step again",
            _second("", [run.second for run in built]),
            _second(" in seconds of the processors", [run.second_cpu for run in built]),
            _spread("package against the ONNX file", [run.package for run in built]),
            _spread("build against the bare steps by hand", [run.hand for run in built]),
            _buckets(built),
        ]
        lines += [f"{scheme}: {line}" for line in told if line]
    if len({run.code for run in runs if run.code}) > 1:
        lines.append("! hexport's code changed between these runs: measure all of them again to compare them")
    return lines


def _second(measured: str, shares: Sequence[float | None]) -> str:
    found = [share for share in shares if share is not None]
    if not found:
        return ""
    fast = sum(share < _BARS["second"] for share in found)
    middle = _percent(median(found))
    return f"second build under 5 % of the first{measured}: {fast} of {len(found)}, median {middle}"


def _spread(what: str, ratios: Sequence[float | None]) -> str:
    found = [ratio for ratio in ratios if ratio is not None]
    if not found:
        return ""
    return f"{what}: median {median(found):.2f} ×, {min(found):.2f} to {max(found):.2f} ×"


def _buckets(built: Sequence[Measured]) -> str:
    shared = {run.model: run.shared for run in built if run.shared is not None}
    if not shared:
        return ""
    told = ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in shared.items())
    within = sum(ratio <= _BARS["buckets"] for ratio in shared.values())
    few = f"at most 1.15 × in {within} of {len(shared)}"
    return f"binaries of all buckets against the largest alone: {told}; {few}"


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _plain(value: float | None, unit: str, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}" if count else ""
