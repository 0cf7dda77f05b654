"""How an error tells that the NPU was lost, and with it everything that was loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexport.facts.load import read_entries


@dataclass(frozen=True)
class Loss:
    """A text that stands in such an error and in no other."""

    text: str
    meaning: str
    source: str


@cache
def losses() -> tuple[Loss, ...]:
    """Every known text."""
    return read_entries("losses.toml", "loss", Loss)


def find_loss(text: str) -> Loss | None:
    """The first that is in the error's text; None: the NPU is still there."""
    return next((loss for loss in losses() if loss.text in text), None)
