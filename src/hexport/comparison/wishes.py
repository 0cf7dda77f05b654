"""What the user asked for beside the two sides: chip, reference, inputs, sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hexport.model.dims import Shape
from hexport.toolchain import Limits


@dataclass(frozen=True)
class Wishes:
    """None and empty: not asked for."""

    target: str | int | None = None
    reference: str | Path | None = None
    inputs: Path | None = None
    samples: int | None = None
    bucket: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, Shape] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def sized(self) -> bool:
        return bool(self.dims or self.input_shapes)
