"""What a zoo model is given where the user says nothing: its own sizes, and inputs that have one value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hexport.zoo.catalogue import entry
from hexport.zoo.models import PREFIX

Shape = tuple[int, ...]


def zoo_defaults(
    model: str | Path,
    input_shapes: Mapping[str, Shape] | None,
    freeze: Mapping[str, str] | None,
    *,
    sized: bool,
) -> tuple[Mapping[str, Shape], dict[str, str], list[str]]:
    """Shapes and frozen inputs, and what to say of them; as they came for any other model.

    ``sized``: sizes were given in another way.
    """
    notes: list[str] = []
    if str(model).startswith(PREFIX):
        found = entry(str(model).removeprefix(PREFIX))
        if not sized and not input_shapes:
            input_shapes = found.input_shapes
            notes.append("no sizes were given; the zoo's own are used")
        if freeze is None and found.frozen:
            freeze = found.frozen
            notes.append(f"frozen as the zoo says: {', '.join(f'{k}={v}' for k, v in freeze.items())}")
    return input_shapes or {}, dict(freeze or {}), notes
