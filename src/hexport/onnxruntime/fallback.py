"""Work that lands on the CPU: said as a warning, or refused."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from hexport.errors import HexportError

_MOST = 5
_ROOM = str(Path(__file__).parent)


class QnnWarning(UserWarning):
    """Something is otherwise than the code that asked for it may believe."""


class CpuFallbackWarning(QnnWarning):
    """Nodes of a session that was to be on the NPU run on the CPU."""


class CpuFallback(HexportError, RuntimeError):
    """Nodes would run on the CPU, and ``session.disable_cpu_ep_fallback`` forbids it."""

    code = "HX951"


def settle(what: str, reasons: Sequence[str], advice: str, *, refused: bool) -> None:
    """Warn that ``what`` is on the CPU; or raise, where the session's options say so."""
    more = len(reasons) - _MOST
    shown = [*reasons[:_MOST], *([f"and {more} more"] if more > 0 else [])]
    if refused:
        why = "\n".join(["session.disable_cpu_ep_fallback is 1", *shown])
        raise CpuFallback(what, why=why, next=advice)
    warn("\n".join([what, *shown, f"next: {advice}"]), CpuFallbackWarning)


def warn(text: str, kind: type[QnnWarning] = QnnWarning) -> None:
    """A warning at the line outside of hexport that made the session."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOM):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
