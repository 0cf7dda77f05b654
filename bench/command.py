"""``hexport`` as a user has it: a process of its own, timed, with the document that it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plain_runs import one_line
from timed_child import Ended, run_timed


def run_hexport(
    arguments: Sequence[str], limit: float, setting: Mapping[str, str] | None = None
) -> tuple[Ended, dict[str, Any]]:
    """How it ended, and its JSON; an empty document when it printed none."""
    ended = run_timed([sys.executable, "-m", "hexport", *arguments, "--json"], limit, setting)
    try:
        document: dict[str, Any] = json.loads(ended.output)
    except ValueError:
        document = {}
    return ended, document


def why(ended: Ended, document: Mapping[str, Any]) -> str:
    """Why it made nothing."""
    if "error" in document:
        error = document["error"]
        return one_line(f"{error['code']} {error['what']}: {error['why']}")
    return one_line(ended.words) or "nothing made, no message"
