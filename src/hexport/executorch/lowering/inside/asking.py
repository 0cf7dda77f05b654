"""What the backend says of every operator, with its own words for each that it refuses.

ExecuTorch asks QNN about one operator at a time and keeps only yes or no; the reason goes to the log.
Here the log is read between two questions.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexport.executorch.lowering.inside.operators import op_name
from hexport.executorch.lowering.inside.programs import module_path
from hexport.executorch.lowering.inside.readying import origin
from hexport.executorch.lowering.inside.stack import stack

_WORDS = re.compile(r"<[EW]>\s*(.+)|\[ERROR\] \[Qnn ExecuTorch\]:\s*(.+)")
_EMPTY = re.compile(
    r"Please refer to|validate(OpConfig|NativeOps)|Supported I/O|Op specific|Failed to validate|^\s*$"
)
_QUOTED = re.compile(r"[\"'](\w+)[\"'] generated|Failed to validate op (\w+)")
_MOST = 400
STAYS = "it was asked to stay off the NPU"


@dataclass
class Answers:
    """Operators of the edge graph that the backend was asked about."""

    refused: dict[str, str] = field(default_factory=dict)
    """Name → why."""
    origins: dict[str, str | None] = field(default_factory=dict)
    """Name → what it was called in the ready graph."""
    where: dict[str, str] = field(default_factory=dict)
    """Name → operator and module, for people."""
    withheld: frozenset[str] = frozenset()
    """Operators of the ready graph that QNN is not asked about."""
    only: frozenset[str] | None = None
    """Those that alone are asked about."""


@contextmanager
def listening(log: Path, answers: Answers) -> Iterator[None]:
    """Hear every answer meanwhile."""
    support = stack().partitioner.QnnOperatorSupport
    ask = support.is_node_supported

    def heard(self: Any, modules: Any, node: Any) -> bool:
        if node.op != "call_function" or self.phase != "QnnPartitioner":
            return bool(ask(self, modules, node))
        name = answers.origins[node.name] = origin(node)
        answers.where[node.name] = _place(node)
        if name in answers.withheld:
            answers.refused[node.name] = STAYS
            return False
        if answers.only is not None and name not in answers.only:
            return False
        begin = _end(log)
        if ask(self, modules, node):
            answers.refused.pop(node.name, None)
            return True
        answers.refused[node.name] = _reason(node, self, _said(log, begin))
        return False

    support.is_node_supported = heard
    try:
        yield
    finally:
        support.is_node_supported = ask


def blamed(log: Path, answers: Answers) -> tuple[str, ...]:
    """The operators that complaints in the log name: those that the compiler stopped at."""
    _flush()
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return ()
    named = [
        name for line in text.splitlines() if "<E>" in line for pair in _QUOTED.findall(line) for name in pair
    ]
    places = [answers.where[name] for name in named if name in answers.where]
    return tuple(dict.fromkeys(places))


def _place(node: Any) -> str:
    path = module_path(node)
    return f"{op_name(node)} in {path}" if path else op_name(node)


def _reason(node: Any, support: Any, said: str) -> str:
    if said:
        return said
    known = stack().partitioner
    name = op_name(node)
    if node.target in known.to_be_implemented_operator:
        return f"ExecuTorch's Qualcomm backend has no builder for {name} yet"
    if node.target in known.not_supported_operator or name not in support.node_visitors:
        return f"ExecuTorch's Qualcomm backend has no builder for {name}"
    return "the builder of this operator cannot express this form of it"


def _end(log: Path) -> int:
    _flush()
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _said(log: Path, begin: int) -> str:
    """The complaints since then, each once, shortened."""
    _flush()
    try:
        with log.open("rb") as stream:
            stream.seek(begin)
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    words = [
        (found[1] or found[2]).replace("<E>", "").strip()
        for line in text.splitlines()
        if (found := _WORDS.search(line))
    ]
    telling = [word for word in dict.fromkeys(words) if not _EMPTY.search(word)]
    first = [word for word in telling if "datatype" not in word] or telling
    return "; ".join([*telling[:1], *[word for word in first if word not in telling[:1]]])[:_MOST]


def _flush() -> None:
    """Python's streams, and C's: a file on stdout is written in blocks."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        ctypes.CDLL(None).fflush(None)
    except (OSError, AttributeError, TypeError):
        return  # no C library under that name: what is not written yet is missed
