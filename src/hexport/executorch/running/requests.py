"""What is asked of a worker that runs a ``.pte``, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from hexport.backend.requests import SampleFiles

MODULE = "hexport.executorch.running.jobs"


@dataclass(frozen=True)
class PteRunRequest:
    """Load one method and run it on samples."""

    pte: str
    method: str
    samples: SampleFiles
    orders: tuple[tuple[int, ...], ...]
    """How the axes of each input lie in memory."""
    backends: tuple[str, ...]
    """What must be registered with ExecuTorch for its parts."""
    operators: tuple[str, ...]
    """What ExecuTorch's own kernels must have."""
    measured_runs: int = 0
    """How often the first sample is run once more, for the clock."""


@dataclass(frozen=True)
class PteRunReply:
    load_seconds: float
    first_seconds: float
    seconds: tuple[float, ...]
    """Of each measured run."""
    memory_bytes: int | None
    """Of the worker; None: this system does not say."""
