"""The worker's side of an isolated session: ``python -m hexport.runtime.serving``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import HexportError
from hexport.records import from_plain, to_plain
from hexport.runtime.engine import InProcess
from hexport.runtime.planning import Part
from hexport.runtime.shared_region import Region, Spot, lay_out
from hexport.toolchain.serving import JobError, serve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class RunMessage:
    """Run one part on tensors that lie in the region."""

    part: str
    inputs: tuple[Spot, ...]
    options: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """Where the outputs are; or, when they do not fit, how much they need."""

    outputs: tuple[Spot, ...]
    needed: int = 0
    rebuilt: int = 0
    """How often this worker has made its sessions anew."""


class _Server:
    def __init__(self) -> None:
        self._engine = InProcess()
        self._region: Region | None = None
        self._waiting: dict[str, Array] = {}

    def attach(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Another region takes the place of the old one."""
        if self._region is not None:
            self._region.close()
        self._region = Region.attach(Path(arguments["path"]), int(arguments["size"]))
        return {}

    def add(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._engine.add(from_plain(Part, part) for part in arguments["parts"])
        return {}

    def run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        message, region = from_plain(RunMessage, arguments), self._region
        assert region is not None
        feeds = {spot.name: region.view(spot) for spot in message.inputs}
        try:
            self._waiting = self._engine.run(message.part, feeds, message.options)
        except HexportError as error:
            raise JobError(type(error).__name__, error.why or error.what) from error
        if text := [name for name, array in self._waiting.items() if array.dtype.kind not in "biufc"]:
            raise JobError("InferenceFailed", f"output {text[0]!r} is no tensor of numbers")
        return self.collect({})

    def collect(self, _: dict[str, Any]) -> dict[str, Any]:
        """The outputs of the last run into the region, if it is large enough."""
        spots, needed = lay_out(self._waiting)
        region = self._region
        assert region is not None
        if needed > region.size:
            answer = Answer((), needed, self._engine.rebuilt)
        else:
            region.put(spots, self._waiting)
            self._waiting = {}
            answer = Answer(spots, 0, self._engine.rebuilt)
        plain: dict[str, Any] = to_plain(answer)
        return plain


if __name__ == "__main__":
    server = _Server()
    serve({"attach": server.attach, "add": server.add, "run": server.run, "collect": server.collect})
