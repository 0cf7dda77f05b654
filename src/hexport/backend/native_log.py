"""What only the native log tells: each node's verdict, the precision, the compiler's DDR figures.

At the verbose level the provider logs every node twice, before and after it changes the layout; the
later verdict counts. The compiler's own lines come through the same log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_VERDICT = re.compile(r"Validation (PASSED|FAILED) for \d+ nodes in (\w+)")
_NODE = re.compile(r"^\s*Operator type: (?P<op>\S+) Node name: (?P<name>.*) Node index: \d+\s*$")
_REASON = re.compile(r"^\s*REASON : (?P<reason>.*)$")
_PRECISION = re.compile(r"Validating Op (?P<name>.+) with precision (?P<precision>\w+)")
_DDR = re.compile(r"\b(spill_bytes|fill_bytes|write_total_bytes|read_total_bytes)=(\d+)")
_SETUP_FAILED = re.compile(r"QNN SetupBackend failed (?P<why>.*)$")
_NOT_CUT = re.compile(r"GetCapability\] (?P<why>.*cannot be fused together.*)$")
_COLOUR_END = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class DdrTraffic:
    """Bytes that cross the memory bus in one inference, as the compiler planned them.

    Deterministic and about the hardware, unlike the simulator's times.
    """

    spill: int
    fill: int
    write_total: int
    read_total: int


@dataclass(frozen=True)
class NativeLog:
    """The facts of one log."""

    passed: frozenset[str]
    failed: dict[str, str]
    """Node → the provider's reason."""
    precision_of: dict[str, str]
    """QNN operator → the precision the compiler validated it in."""
    ddr: DdrTraffic | None
    setup_failure: str
    cut_failure: str = ""
    """Why ONNX Runtime refused the parts that the provider cut the model into."""


def read_native_log(path: Path) -> NativeLog:
    """Parse a log file of any size, line by line."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_native_log(lines)


def parse_native_log(lines: Iterable[str]) -> NativeLog:
    """Parse the lines of a log."""
    verdicts: dict[str, str | None] = {}
    precision_of: dict[str, str] = {}
    ddr: Counter[str] = Counter()
    setup_failure = cut_failure = ""
    group: list[str] = []
    passed_group = True
    for line in lines:
        # Plain substring tests first: the log has millions of lines, and few of them matter.
        if "LogNodeSupport" in line and (found := _VERDICT.search(line)):
            group, passed_group = [], found[1] == "PASSED"
        elif "Operator type: " in line and (found := _NODE.match(line)):
            group.append(found["name"])
            verdicts[found["name"]] = None if passed_group else ""
        elif "REASON : " in line and (found := _REASON.match(line)) and not passed_group:
            verdicts |= dict.fromkeys(group, found["reason"].strip())
        elif "with precision" in line and (found := _PRECISION.search(line)):
            precision_of[found["name"]] = found["precision"]
        elif "_bytes=" in line and (found := _DDR.search(line)):
            ddr[found[1]] += int(found[2])
        elif "SetupBackend failed" in line and (found := _SETUP_FAILED.search(_COLOUR_END.sub("", line))):
            setup_failure = found["why"].strip()
        elif "cannot be fused" in line and (found := _NOT_CUT.search(_COLOUR_END.sub("", line))):
            cut_failure = found["why"].strip()
    return NativeLog(
        passed=frozenset(name for name, reason in verdicts.items() if reason is None),
        failed={name: reason for name, reason in verdicts.items() if reason is not None},
        precision_of=precision_of,
        ddr=_traffic(ddr) if ddr else None,
        setup_failure=setup_failure,
        cut_failure=cut_failure,
    )


def _traffic(totals: Counter[str]) -> DdrTraffic:
    return DdrTraffic(
        spill=totals["spill_bytes"],
        fill=totals["fill_bytes"],
        write_total=totals["write_total_bytes"],
        read_total=totals["read_total_bytes"],
    )
