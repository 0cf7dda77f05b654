"""What is asked of the worker that runs a torch program, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from hexport.backend.requests import SampleFiles

MODULE = "hexport.executorch.verification.jobs"


@dataclass(frozen=True)
class ProgramRequest:
    """Run a saved program on samples, whose arrays are its tensors in their order."""

    program: str
    samples: SampleFiles
    outputs: int
    """How many tensors it must give."""


@dataclass(frozen=True)
class ProgramReply:
    seconds: float
