"""Why a node stays on the CPU: from the backend's own words to a cause and what to do."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hexport.facts.load import advice

if TYPE_CHECKING:
    from hexport.facts.load import Advice, Soc


# ONNX's own, onnxruntime's contributed ones, and the layout domain that it moves nodes to by itself.
_KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.ms.internal.nhwc")


def advise(op_type: str, domain: str, reason: str, target: Soc | None = None) -> Advice:
    """The first entry that fits the node and what the backend said of it; the last one fits everything.

    ``target`` lets the advice count in what the chip lacks.
    """
    integer_only = target is not None and not target.float
    foreign = domain not in _KNOWN_DOMAINS
    return next(
        entry
        for entry in advice()
        if (not entry.ops or op_type in entry.ops)
        and (integer_only or not entry.without_float)
        and (foreign or not entry.foreign_domain)
        and _pattern(entry.match).search(reason)
    )


@cache
def _pattern(match: str) -> re.Pattern[str]:
    return re.compile(match, re.IGNORECASE)
