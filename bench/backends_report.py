"""What ``backends.py`` found: kept in a JSON file as it comes, shown as a table and counts at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from results_file import ResultsFile

WIDTH = 180
QNN_CPU, NPU, OLD_NPU = SIDES = ("qnn-cpu", "npu", "old-npu")
FLOAT32_DB = 100.0
"""Nearer than this only the order of float32 sums differs."""
_KINDS = ("whole", "partly", "nothing", "fails")


@dataclass(frozen=True)
class Left:
    """A node that a side left to ONNX Runtime's CPU."""

    name: str
    op: str
    cause: str


@dataclass(frozen=True)
class Answer:
    """What one side takes of a model."""

    seconds: float
    taken: int = 0
    partitions: int = 0
    macs_taken: int = 0
    macs_left: int = 0
    left: tuple[Left, ...] = ()
    failure: str = ""

    @property
    def kind(self) -> str:
        """``whole``, ``partly``, ``nothing`` or ``fails``."""
        if self.failure:
            return "fails"
        if not self.taken:
            return "nothing"
        return "partly" if self.left else "whole"

    def __str__(self) -> str:
        if self.failure:
            return self.failure.split()[0]  # the code; the message is below the table
        total = self.macs_taken + self.macs_left
        share = f", {100 * self.macs_taken / total:.4g} % MACs" if total and self.left else ""
        mark = {"whole": "✓", "partly": "!", "nothing": "✗"}[self.kind]
        return f"{mark} {self.taken}/{self.taken + len(self.left)} in {self.partitions}{share}"


@dataclass(frozen=True)
class Measured:
    """One model on every side."""

    model: str
    answers: Mapping[str, Answer]
    db: float | str | None
    """QNN's CPU backend against ONNX Runtime's, worst output; ``exact`` and ``broken`` are the infinities."""
    run_failure: str = ""

    @property
    def nearness(self) -> str:
        if self.run_failure:
            return self.run_failure.split()[0]
        return self.db if isinstance(self.db, str) else "" if self.db is None else f"{self.db:.0f} dB"

    @property
    def right(self) -> bool:
        return self.db == "exact" or (isinstance(self.db, float | int) and self.db >= FLOAT32_DB)


class Results(ResultsFile[Measured]):
    """By model."""

    @classmethod
    def begin(cls, file: Path, settings: Mapping[str, Any], *, resume: bool) -> Results:
        """Empty, or with what ``file`` has."""
        results = cls(file, settings, lambda run: run.model, _plain)
        if resume:
            results.go_on(_read)
        return results

    def has(self, model: str) -> bool:
        return any(run.model == model for run in self.runs)


def _plain(run: Measured) -> dict[str, Any]:
    return {**asdict(run), "kinds": {side: answer.kind for side, answer in run.answers.items()}}


def _read(run: Mapping[str, Any]) -> Measured:
    answers = {
        side: Answer(**{**answer, "left": tuple(Left(**node) for node in answer["left"])})
        for side, answer in run["answers"].items()
    }
    return Measured(run["model"], answers, run["db"], run["run_failure"])


def show(runs: Sequence[Measured], settings: Mapping[str, Any]) -> None:
    """Print it all on stdout."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    sides = {
        QNN_CPU: f"QNN CPU, {settings['there']['onnxruntime-qnn']}",
        NPU: f"NPU of {settings['target']}, {settings['here']['onnxruntime-qnn']}",
        OLD_NPU: f"NPU of {settings['target']}, {settings['there']['onnxruntime-qnn']}",
    }
    shown = {side: title for side, title in sides.items() if side not in settings["without"]}
    table = Table(
        "model", *shown.values(), "QNN CPU against ORT's", box=None, pad_edge=False, header_style=""
    )
    for run in runs:
        table.add_row(run.model, *(str(run.answers[side]) for side in shown), run.nearness)
    console.print(table)
    for line in (*_LEGEND, "", *_failures(runs, shown), *_causes(runs, shown), "", *_sums(runs, shown)):
        console.print(line, soft_wrap=True)


_LEGEND = (
    "17/20 in 3: of the model's own nodes that were not folded away 17 of 20 are taken, in 3 partitions.",
    "dB: the worst output on one real input; what QNN's CPU backend leaves is ORT's on both sides.",
)


def _failures(runs: Sequence[Measured], shown: Mapping[str, str]) -> Iterator[str]:
    for run in runs:
        for side, title in shown.items():
            if run.answers[side].failure:
                yield f"{run.model}, {title}: {run.answers[side].failure}"
        if run.run_failure:
            yield f"{run.model}, run on QNN's CPU backend: {run.run_failure}"


def _causes(runs: Sequence[Measured], shown: Mapping[str, str]) -> Iterator[str]:
    """Why nodes were left, by side; and which operators only one of two sides left."""
    for side, title in shown.items():
        found = Counter(f"{node.op} {node.cause}" for run in runs for node in run.answers[side].left)
        listed = ", ".join(f"{words} ×{count}" for words, count in found.most_common())
        yield f"left by {title}: {listed or 'nothing'}"
    if {QNN_CPU, NPU} <= set(shown):
        for one, other in ((QNN_CPU, NPU), (NPU, QNN_CPU)):
            ops = Counter(node.op for run in runs for node in _only(run, one, other))
            listed = ", ".join(f"{op} ×{count}" for op, count in ops.most_common())
            yield f"left by {shown[one]} and not by {shown[other]}: {listed or 'nothing'}"


def _only(run: Measured, one: str, other: str) -> list[Left]:
    """Where one of the two failed as a whole, nodes tell nothing."""
    if run.answers[one].failure or run.answers[other].failure:
        return []
    elsewhere = {node.name for node in run.answers[other].left}
    return [node for node in run.answers[one].left if node.name not in elsewhere]


def _sums(runs: Sequence[Measured], shown: Mapping[str, str]) -> Iterator[str]:
    yield f"of {len(runs)} models"
    for side, title in shown.items():
        kinds = Counter(run.answers[side].kind for run in runs)
        seconds = sum(run.answers[side].seconds for run in runs)
        yield f"  {title}: {', '.join(f'{kinds[kind]} {kind}' for kind in _KINDS)}; {seconds:.0f} s"
    if QNN_CPU in shown:
        ran = [run for run in runs if run.db is not None]
        near = sum(run.right for run in ran)
        other = ", ".join(f"{run.model} {run.nearness}" for run in ran if not run.right)
        wrong = f"; not: {other}" if other else ""
        counts = f"{len(ran)} of them ran, {near} with {FLOAT32_DB:.0f} dB or more against ORT's"
        yield f"  {shown[QNN_CPU]}: {counts}{wrong}"
