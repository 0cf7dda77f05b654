"""The end of a native log, short enough to show: complaints first, then what it said last."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

_TAIL_BYTES = 256 * 1024
_MOST_LINES = 12
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ ")
# QNN's own lines come through onnxruntime's log with a prefix that says nothing about them.
_RELAYED = re.compile(r"^\[\w:onnxruntime:\w*, qnn_backend_manager\.cc:\d+ QnnLogging\]\s*")
_COMPLAINT = re.compile(r"^\[[EF]:|^<E>|REASON :|terminate called|what\(\):|[Aa]ssertion|^Fatal|Error\b")


def last_words(log: Path) -> tuple[str, ...]:
    """At most a dozen lines: the last complaints of the log, or simply its last lines."""
    try:
        with log.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ()
    lines = [clean for line in text.splitlines() if (clean := clean_line(line))]
    complaints = deque((line for line in lines if _COMPLAINT.search(line)), _MOST_LINES)
    return tuple(complaints) or tuple(lines[-_MOST_LINES:])


def clean_line(line: str) -> str:
    """A log line without colours, time stamp and relay prefix."""
    return _RELAYED.sub("", _PREFIX.sub("", _COLOUR.sub("", line))).strip()
