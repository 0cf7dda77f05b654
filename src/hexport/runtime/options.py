"""How the NPU shall work: performance, priority, RPC latency, profiling; for a session or for one call."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from hexport.backend.options import validate_options
from hexport.errors import UsageError
from hexport.runtime.choosing import CPU


@dataclass(frozen=True)
class Tuning:
    """What is asked for; None and empty: the provider's own default."""

    performance: str | None = None
    """``burst``, ``balanced``, ``power_saver``, …"""
    priority: str | None = None
    """``low``, ``normal``, ``high``, …"""
    rpc_latency: int | None = None
    """In microseconds."""
    profiling: str | None = None
    """``basic``, ``detailed``, ``optrace``."""
    profiling_file: str | None = None

    def changed(self, other: Tuning) -> Tuning:
        """This, with what ``other`` asks for in its place."""
        asked = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(self, **{name: value for name, value in asked.items() if value is not None})

    def provider_options(self, backend: str) -> dict[str, str]:
        """For a session; checked."""
        given = {
            "htp_performance_mode": self.performance,
            "qnn_context_priority": self.priority,
            "rpc_control_latency": self.rpc_latency,
            "profiling_level": self.profiling,
            "profiling_file_path": self.profiling_file,
        }
        options = {key: str(value) for key, value in given.items() if value is not None}
        if options and backend == CPU:
            raise UsageError(
                f"{', '.join(options)}: no meaning on the CPU", next="leave out, or choose another backend"
            )
        validate_options(options)
        return options


def absolute(file: str | Path | None) -> str | None:
    """Where a file is meant to be: a worker has another current folder."""
    return None if file is None else str(Path(file).absolute())


def run_options(performance: str | None, rpc_latency: int | None, backend: str) -> dict[str, str]:
    """For one call; checked."""
    given = {"qnn.htp_perf_mode": performance, "qnn.rpc_control_latency": rpc_latency}
    options = {key: str(value) for key, value in given.items() if value is not None}
    if options and backend == CPU:
        raise UsageError(f"{', '.join(options)}: no meaning on the CPU", next="leave out")
    validate_options({}, run=options)
    return options
