"""What is asked of the worker that puts a context binary into a ``.pte``."""

from __future__ import annotations

from dataclasses import dataclass

from hexport.backend.context_binary import ContextTensor

MODULE = "hexport.executorch.conversion.jobs"


@dataclass(frozen=True)
class MakePteRequest:
    """One graph of a context binary becomes a method of its name."""

    binary: str
    output: str
    graph: str
    soc_model: int
    inputs: tuple[ContextTensor, ...]
    """As the binary lists them."""
    outputs: tuple[ContextTensor, ...]
    input_order: tuple[int, ...]
    """Which of the binary's inputs is the first of the method, the second, …"""
    output_order: tuple[int, ...]
