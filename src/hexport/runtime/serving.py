"""The worker's side of an isolated session: ``python -m hexport.runtime.serving``."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.errors import HexportError
from hexport.records import RecordError, from_plain
from hexport.runtime.engine import InProcess
from hexport.runtime.failures import InferenceFailed
from hexport.runtime.messages import Add, Answer, Attach, Open, Run
from hexport.runtime.shared_region import Region, Spot, end_of, lay_out
from hexport.toolchain.protocol import ProtocolError
from hexport.toolchain.serving import Job, JobError, serve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_MOST_LAYOUTS = 64
"""That are remembered: callers with ever new sizes shall not fill the memory."""
_WORTH_BYTES = 2**18
"""Outputs below that are copied faster than ONNX Runtime is told where to write them."""
_Request = tuple[str, tuple[Spot, ...]]
"""A part, and where its inputs lie."""


class Server:
    """One engine and one region, and the jobs that they do."""

    def __init__(self) -> None:
        self._engine = InProcess()
        self._known: set[str] = set()
        self._region: Region | None = None
        self._waiting: dict[str, Array] = {}
        self._layouts: dict[_Request, tuple[tuple[Spot, ...], int]] = {}
        """Where outputs find room behind the inputs, by what they were the last time; and the end of them."""
        self._unsteady: set[str] = set()
        """Parts whose outputs had other shapes the next time."""

    def jobs(self) -> dict[str, Job]:
        every = (self.attach, self.add, self.open, self.run, self.collect, self.close)
        return {job.__name__: _answering_for(job) for job in every}

    def attach(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Another region takes the place of the old one."""
        asked = from_plain(Attach, arguments)
        new = Region.attach(Path(asked.path), asked.size)
        if self._region is not None:
            self._region.close()
        self._region = new
        return {}

    def add(self, arguments: dict[str, Any]) -> dict[str, Any]:
        parts = from_plain(Add, arguments).parts
        self._engine.add(parts)
        self._known |= {part.name for part in parts}
        return {}

    def open(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._engine.open(self._name(from_plain(Open, arguments).part))
        return {}

    def run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked, region = Run.read(arguments), self._attached()
        feeds = {spot.name: region.view(spot) for spot in asked.inputs}
        request = (self._name(asked.part), asked.inputs)
        spots = self._in_place(request, feeds, asked.options, region)
        if spots is not None:
            return self._answer(spots)
        self._waiting = self._engine.run(asked.part, feeds, asked.options)
        if text := [name for name, array in self._waiting.items() if array.dtype.kind not in "biufc"]:
            raise InferenceFailed(f"output {text[0]!r} is no tensor of numbers")
        return self._collected(self._remember(request, feeds))

    def collect(self, _: dict[str, Any]) -> dict[str, Any]:
        """The outputs of the last run, once the region is large enough."""
        return self._collected()

    def close(self, _: dict[str, Any]) -> dict[str, Any]:
        """Let the NPU go, and finish what native code writes: the process is ended next."""
        self._engine.close()
        return {}

    def _in_place(
        self, request: _Request, feeds: dict[str, Array], options: dict[str, str], region: Region
    ) -> tuple[Spot, ...] | None:
        """Outputs that the model writes to the region itself; None: they must be copied there."""
        spots, end = self._layouts.get(request, ((), 0)) if self._layouts else ((), 0)
        if not spots or end > region.size:
            return None
        try:
            self._engine.run(request[0], feeds, options, None, {s.name: region.view(s) for s in spots})
        except InferenceFailed:
            return None  # other shapes than the last time, perhaps: without places for them it is seen
        return spots

    def _remember(self, request: _Request, feeds: dict[str, Array]) -> int:
        """Where the outputs can lie the next time; how large the region must be for that."""
        (part, inputs), outputs = request, self._waiting
        sizes = [array.nbytes for array in outputs.values()]
        if sum(sizes) < _WORTH_BYTES or not all(sizes) or part in self._unsteady:
            return 0
        layout = lay_out(outputs, end_of(inputs, feeds))
        if self._layouts.get(request, layout) != layout:
            self._unsteady.add(part)
            self._layouts = {known: one for known, one in self._layouts.items() if known[0] != part}
            return 0
        while len(self._layouts) >= _MOST_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]
        self._layouts[request] = layout
        return layout[1]

    def _collected(self, roomy: int = 0) -> dict[str, Any]:
        spots, needed = lay_out(self._waiting)
        region = self._attached()
        if needed > region.size:
            return self._answer((), needed, roomy)
        region.put(spots, self._waiting)
        self._waiting = {}
        return self._answer(spots, 0, roomy)

    def _answer(self, spots: tuple[Spot, ...], needed: int = 0, roomy: int = 0) -> dict[str, Any]:
        return Answer(spots, needed, self._engine.rebuilt, roomy).written()

    def _attached(self) -> Region:
        if self._region is None:
            raise ProtocolError("there is no region yet")
        return self._region

    def _name(self, part: str) -> str:
        if part not in self._known:
            raise ProtocolError(f"part {part!r} is not known")
        return part


def _answering_for(job: Job) -> Job:
    """The job, whose errors travel by their names."""

    @wraps(job)
    def answer(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return job(arguments)
        except HexportError as error:
            raise JobError(type(error).__name__, error.why or error.what) from error
        except (ProtocolError, RecordError) as error:
            raise JobError("WorkerProtocolError", str(error)) from error

    return answer


if __name__ == "__main__":
    serve(Server().jobs())
