"""What an isolated session and its worker say to each other.

``Run`` and ``Answer`` go with every request, and are written and read by hand: that takes a quarter off the
time of a small one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hexport.runtime.parts import Part
from hexport.runtime.shared_region import Spot
from hexport.toolchain.protocol import ProtocolError

MODULE = "hexport.runtime.serving"
"""The worker's own."""


@dataclass(frozen=True)
class Attach:
    """Tensors lie in this file from now on."""

    path: str
    size: int


@dataclass(frozen=True)
class Add:
    """Parts that may be asked for."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Open:
    """Make the sessions now that a run of this part would make first."""

    part: str


@dataclass(frozen=True)
class Run:
    """Run one part on tensors that lie in the region."""

    part: str
    inputs: tuple[Spot, ...]
    options: dict[str, str]

    def written(self) -> dict[str, Any]:
        return {"part": self.part, "inputs": _written(self.inputs), "options": self.options}

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Run:
        match plain:
            case {"part": str(part), "inputs": list(inputs), "options": dict(options), **rest} if not rest:
                if all(isinstance(value, str) for value in options.values()):
                    return cls(part, _read(inputs), options)
        raise ProtocolError("not a request to run a part")


@dataclass(frozen=True)
class Answer:
    """Where the outputs are; or, when they do not fit, how much they need."""

    outputs: tuple[Spot, ...]
    needed: int = 0
    rebuilt: int = 0
    """How often this worker has made its sessions anew."""
    roomy: int = 0
    """A region of so many bytes would hold inputs and outputs at once, which spares a copy."""

    def written(self) -> dict[str, Any]:
        return {"outputs": _written(self.outputs), "counts": [self.needed, self.rebuilt, self.roomy]}

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Answer:
        match plain:
            case {"outputs": list(outputs), "counts": [int(needed), int(rebuilt), int(roomy)], **rest}:
                if not rest and min(needed, rebuilt, roomy) >= 0:
                    return cls(_read(outputs), needed, rebuilt, roomy)
        raise ProtocolError("not an answer to a request")


def _written(spots: Iterable[Spot]) -> list[Any]:
    return [(spot.name, spot.dtype, spot.shape, spot.offset) for spot in spots]


def _read(plain: list[Any]) -> tuple[Spot, ...]:
    spots = []
    for one in plain:
        match one:
            case [str(name), str(dtype), [*shape], int(offset)] if all(type(size) is int for size in shape):
                spots.append(Spot(name, dtype, tuple(shape), offset))
            case _:
                raise ProtocolError(f"{one!r:.200} is no place of a tensor")
    return tuple(spots)
