"""The chips that ExecuTorch can lower for, by hexport's own names for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexport.facts.load import Soc, read_entries


@dataclass(frozen=True)
class ExecutorchChip:
    """A chip with a name in ExecuTorch's ``QcomChipset``."""

    name: str
    soc_model: int
    fp16: bool
    """Float programs are computed on its NPU."""
    source: str


@cache
def executorch_chips() -> tuple[ExecutorchChip, ...]:
    """All of them, by the number of the SoC."""
    return read_entries("executorch_chips.toml", "chip", ExecutorchChip)


def executorch_chip(soc: Soc) -> ExecutorchChip | None:
    """What ExecuTorch calls ``soc``; None: it does not know it."""
    return next((chip for chip in executorch_chips() if chip.soc_model == soc.soc_model), None)
