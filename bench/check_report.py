"""The table and the sums of ``check.py``: what each side says runs on the NPU, and what really does."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from plain_runs import FP32_DB, PlainRun, one_line

WIDTH = 190
SOUND_DB = 30.0
_LEGEND = (
    "17/20 in 3: of the model's own nodes that were not folded away, 17 of 20 are on the NPU, in 3 pieces.",
    "dB: the worst output of a run on a real input, against the CPU's fp32. A session wholly on the NPU with",
    f"{FP32_DB:.0f} dB or more was computed in fp32, which no NPU does: rounding to fp16 alone leaves 74 dB.",
    "hexport, really: another session on the fixed model, with soc_model; ≠ where it contradicts check.",
)


@dataclass(frozen=True)
class Checked:
    """What ``hexport check --json`` answered."""

    seconds: float
    document: dict[str, Any]
    broken: str = ""
    """Why there was no document, if so."""

    @property
    def error(self) -> dict[str, str] | None:
        return self.document.get("error")

    @property
    def typed_error(self) -> bool:
        # HX000 is hexport's word for a defect of its own.
        return self.error is not None and self.error["code"] != "HX000"

    @property
    def kind(self) -> str:
        """``whole``, ``pieces``, ``cpu`` as for the plain side, ``error`` or ``broken``."""
        if self.error is not None or self.broken:
            return "error" if self.typed_error else "broken"
        if self.document["full"] and self.document["partitions"] == 1:
            return "whole"
        return "pieces" if self.document["nodes"]["npu"] else "cpu"

    @property
    def unexplained(self) -> list[dict[str, Any]]:
        """CPU nodes without a reason, without advice, or of a cause that hexport does not know."""
        nodes: list[dict[str, Any]] = self.document.get("cpu_nodes", [])
        return [n for n in nodes if not (n["reason"] and n["advice"] and n["cause"] != "unknown")]


@dataclass(frozen=True)
class Row:
    """One model on every side."""

    model: str
    as_is: PlainRun
    fixed: PlainRun
    tool_complaint: str
    """What the documented tool for fixing shapes said, when it could not."""
    checked: Checked
    confirmed: PlainRun
    """A plain session on the fixed model with the target's soc_model: the truth about hexport's word."""

    @property
    def word_held(self) -> bool:
        """Whether hexport's verdict is what a session of its own on the same model gives."""
        if self.checked.error is not None or self.checked.broken:
            return self.confirmed.outcome != "loaded"
        said, found = self.checked.document, self.confirmed
        same = found.kind == self.checked.kind and found.partitions == said["partitions"]
        return same and {"npu": found.npu, "cpu": found.cpu} == said["nodes"]


def show(rows: Sequence[Row], target: str) -> None:
    """Print it all on stdout."""
    console = Console(width=WIDTH, highlight=False, markup=False)
    console.print(_table(rows, target))
    for line in (*_notes(rows), "", *_sums(rows)):
        console.print(line, soft_wrap=True)


def _table(rows: Sequence[Row], target: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="", collapse_padding=True)
    table.add_column("\nmodel", no_wrap=True)
    for side in ("plain, as it is", "plain, shapes fixed"):
        table.add_column(f"{side}\nsays", no_wrap=True)
        table.add_column("\nreally", no_wrap=True)
    table.add_column(f"hexport check --target {target}\nsays", no_wrap=True)
    table.add_column("\nreally", no_wrap=True)
    table.add_column("\ntime", justify="right", no_wrap=True)
    for row in rows:
        mark = " †" if row.tool_complaint else ""
        table.add_row(
            row.model,
            row.as_is.says or "error",
            _really(row.as_is),
            (row.fixed.says or "error") + mark,
            _really(row.fixed),
            _verdict(row.checked),
            _really(row.confirmed) + ("" if row.word_held else " ≠"),
            f"{row.checked.seconds:.1f} s",
        )
    return table


def _really(run: PlainRun) -> str:
    if run.outcome != "loaded":
        return _error_code(run)
    if not run.npu:
        return f"all {run.cpu} nodes on CPU"
    return f"{run.npu}/{run.npu + run.cpu} in {run.partitions}{_nearness(run)}"


def _nearness(run: PlainRun) -> str:
    if run.run_problem:
        return ", no result"
    if run.exact or run.garbage:
        return ", exact" if run.exact else ", NaN"
    return "" if run.sqnr_db is None else f", {round(run.sqnr_db)} dB"


def _error_code(run: PlainRun) -> str:
    """As short as it still names the error; the message is printed below the table."""
    if run.outcome != "error":
        return f"{run.outcome}: {run.error}"
    if "Code: " in run.error:
        return f"error {run.error.rpartition('Code: ')[2]}"
    return "error"


def _verdict(checked: Checked) -> str:
    if checked.error is not None:
        return f"{checked.error['code']} {one_line(checked.error['what'], 40)}"
    if checked.broken:
        return f"broken: {one_line(checked.broken, 40)}"
    said = checked.document
    nodes, macs = said["nodes"], said["macs"]
    total = macs["npu"] + macs["cpu"]
    known = " known" if said["uncounted"] else ""
    share = f", {100 * macs['npu'] / total:.4g} %{known} MACs" if total else ""
    mark = "✓ " if said["full"] else "! " if nodes["npu"] else "✗ "
    count = f"{nodes['npu']}/{nodes['npu'] + nodes['cpu']} in {said['partitions']}"
    return f"{mark}{count}{share}, {said['scheme']}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    yield ""
    yield from _LEGEND
    if any(row.tool_complaint for row in rows):
        yield "† onnxruntime's documented tool could not fix the shapes; they were written without it:"
    yield from (f"    {row.model}: {one_line(row.tool_complaint)}" for row in rows if row.tool_complaint)
    yield from _listed("errors, as it is", [(row.model, row.as_is.error) for row in rows])
    yield from _listed("errors, shapes fixed", [(row.model, row.fixed.error) for row in rows])
    sides = [(row.model, run) for row in rows for run in (row.as_is, row.fixed, row.confirmed)]
    yield from _listed("loads, but run() gave no result", [(name, run.run_problem) for name, run in sides])
    why = [(row.model, one_line((row.checked.error or {}).get("why", row.checked.broken))) for row in rows]
    yield from _listed("errors, hexport check", why)
    yield from _causes(rows)


def _causes(rows: Sequence[Row]) -> Iterator[str]:
    counts = {
        row.model: Counter(n["cause"] for n in row.checked.document.get("cpu_nodes", [])) for row in rows
    }
    if any(counts.values()):
        yield "on the CPU, by hexport check:"
    for model, causes in counts.items():
        if causes:
            yield f"    {model}: {', '.join(f'{cause} ×{count}' for cause, count in causes.most_common())}"


def _listed(title: str, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The models by message, so that one message for many is said once."""
    models: dict[str, list[str]] = {}
    for model, message in found:
        if message:
            models.setdefault(message, []).append(model)
    if models:
        yield f"{title}:"
    for message, names in models.items():
        yield f"    {message}\n        {', '.join(dict.fromkeys(names))}"


def _sums(rows: Sequence[Row]) -> Iterator[str]:
    yield f"of {len(rows)} models"
    yield _plain_sums("plain, as it is", [row.as_is for row in rows])
    yield _plain_sums("plain, shapes fixed", [row.fixed for row in rows])
    kinds = [row.checked.kind for row in rows]
    partial = [row.checked for row in rows if row.checked.kind in ("pieces", "cpu")]
    explained = sum(not checked.unexplained for checked in partial)
    cpu_nodes = sum(len(checked.document["cpu_nodes"]) for checked in partial)
    unknown = sum(len(checked.unexplained) for checked in partial)
    yield (
        f"  {'hexport check':<20} {kinds.count('whole')} wholly on the NPU in one partition · "
        f"{len(partial)} partly, {explained} of them with every CPU node explained "
        f"({cpu_nodes - unknown} of {cpu_nodes} nodes) · {kinds.count('error')} typed errors · "
        f"{kinds.count('broken')} untyped · its word held for {sum(row.word_held for row in rows)}"
    )
    whole = [row.confirmed for row in rows if row.checked.kind == "whole"]
    measured = sum(run.measured for run in whole)
    sound = sum(run.exact or (run.sqnr_db or 0.0) >= SOUND_DB for run in whole)
    reach = f"{sound} of the {measured} that were measured reach {SOUND_DB:.0f} dB"
    yield f"  (check does not look at accuracy: of its {len(whole)} wholly on the NPU, {reach})"
    yield from _times(rows)


def _plain_sums(side: str, runs: Sequence[PlainRun]) -> str:
    kinds = [run.kind for run in runs]
    fp32 = sum(run.in_fp32 for run in runs if run.kind == "whole")
    most = max((run.partitions for run in runs if run.kind == "pieces"), default=0)
    silent = sum(run.kind == "cpu" and run.says == "NPU" for run in runs)
    return (
        f"  {side:<20} {sum(run.outcome == 'loaded' for run in runs)} load · "
        f"{sum(run.says == 'NPU' for run in runs)} say NPU · "
        f"{kinds.count('whole')} wholly on the NPU in one partition ({fp32} of them in fp32) · "
        f"{silent} say NPU and run 100 % on the CPU · "
        f"{kinds.count('pieces')} partly, in {most} partitions at most · "
        f"{kinds.count('error')} errors · {kinds.count('crash')} crashes · {kinds.count('timeout')} hangs"
    )


def _times(rows: Sequence[Row]) -> Iterator[str]:
    """Session creation against the whole command, where both compile the same model for the same chip."""
    pairs = [
        (row.checked.seconds, row.confirmed.seconds)
        for row in rows
        if row.confirmed.outcome == "loaded" and row.checked.kind in ("whole", "pieces", "cpu")
    ]
    if pairs:
        ratio = statistics.median(checked / plain for checked, plain in pairs)
        yield (
            f"  time: hexport check {sum(c for c, _ in pairs):.1f} s for {len(pairs)} models, "
            f"the sessions alone {sum(p for _, p in pairs):.1f} s; median ratio {ratio:.2f}"
        )
