"""The provider's answer to every node: from its op trace, or from its log where a release writes no trace."""

from __future__ import annotations

from pathlib import Path

from hexport import facts
from hexport.backend.native_log import NativeLog
from hexport.backend.op_trace import OpTrace, Unsupported, read_op_trace
from hexport.errors import UsageError

_SWITCH = "enable_framework_op_trace"
_FILE = "qnn_op_trace.json"


def traces() -> bool:
    """Whether the release that native code will use can write one."""
    release = facts.installed_release()
    return release is None or facts.parse_version(release) >= facts.parse_version(_since())


def refuse_untraced(verb: str) -> None:
    """For what cannot be told without a trace."""
    if not traces():
        raise UsageError(
            f"{verb} needs onnxruntime-qnn {_since()} or newer",
            why=f"{facts.installed_release()} writes no trace of what it compiled, which is read back",
            next="use another --toolchain; check and prepare do without",
        )


def trace_options(folder: Path) -> dict[str, str]:
    """Have it written to ``folder``, where that can be had."""
    return {_SWITCH: "1", "framework_op_trace_dir": str(folder)} if traces() else {}


def was_asked(folder: Path, native: NativeLog) -> bool:
    """Whether the backend was asked about any node at all; one that did not start is not."""
    return (folder / _FILE).exists() if traces() else bool(native.passed or native.failed)


def read_trace(folder: Path, native: NativeLog) -> OpTrace:
    """The trace; from the log it lacks the compiled operators, and so their precisions."""
    if traces():
        return read_op_trace(folder / _FILE)
    refused = tuple(
        Unsupported(name, "", reason)
        for name, reason in native.failed.items()
        # Asked about a Loop's body, the provider meets its own compiled partitions and "refuses" them.
        if not name.startswith("QNNExecutionProvider_")
    )
    return OpTrace(refused, (), {})


def _since() -> str:
    return next(option.since for option in facts.options() if option.key == _SWITCH)
