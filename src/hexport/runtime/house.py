"""One worker of an isolated session, with its region and its folder: what is made anew together."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hexport.records import to_plain
from hexport.runtime.failures import RunError
from hexport.runtime.messages import MODULE, Add, Answer, Attach, Open, Run
from hexport.runtime.parts import Part
from hexport.runtime.shared_region import Region, lay_out
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, Limits, Worker, WorkerError, WorkerProtocolError
from hexport.toolchain.protocol import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.runtime.deadline import Deadline

    Array = NDArray[Any]

_SMALLEST = 2**20
_PARTING_SECONDS = 5.0
"""For letting the NPU go."""


class House:
    """A worker in ``interpreter``, None for this one. It has one tenant at a time."""

    def __init__(self, limits: Limits, interpreter: Interpreter | None, size: int = 0) -> None:
        self.rebuilt = 0
        """How often the worker has made its sessions anew, without dying."""
        self._known: set[str] = set()
        self._open: set[str] = set()
        self._wanted = size
        """How large the region would best be."""
        self._region: Region | None = None
        self._ends = contextlib.ExitStack()
        try:
            folder = self._ends.enter_context(temporary_folder())
            # After the worker: Windows removes no file that somebody has open.
            self._ends.callback(self._close_region)
            # Which one is settled here, and not by what is in force when a worker must be replaced.
            python = interpreter or sys.executable
            self._worker = Worker(MODULE, folder / "native.log", limits=limits, python=python)
            self._ends.callback(self._worker.close)
            self._widen(max(size, _SMALLEST), None)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._worker.pid

    @property
    def size(self) -> int:
        """Of the region."""
        return self._region.size if self._region is not None else 0

    def has_open(self, part: str) -> bool:
        """Whether that part runs without anything being loaded first."""
        return part in self._open

    def open(self, part: str, parts: Iterable[Part]) -> None:
        """Load ``part``; the worker learns of all ``parts`` that it does not know yet."""
        new = tuple(one for one in parts if one.name not in self._known)
        if new:
            self._call("add", to_plain(Add(new)))
            self._known |= {one.name for one in new}
        self._call("open", to_plain(Open(part)))
        self._open.add(part)

    def ask(
        self,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        deadline: Deadline | None,
    ) -> dict[str, Array]:
        """The outputs: copied into the region once, and out of it once."""
        try:
            return self._asked(part, feeds, options, deadline)
        except ProtocolError as error:
            raise WorkerProtocolError(
                "the worker's answer makes no sense",
                why=str(error),
                next="run `hexport doctor`; if all is well, report it",
            ) from error

    def close(self, *, gently: bool = False) -> None:
        """End the worker and free everything; ``gently`` where it is idle and may let the NPU go first."""
        if gently:
            with contextlib.suppress(WorkerError):
                self._worker.call("close", {}, seconds=_PARTING_SECONDS)
        self._ends.close()

    def _asked(
        self, part: str, feeds: Mapping[str, Array], options: Mapping[str, str], deadline: Deadline | None
    ) -> dict[str, Array]:
        spots, needed = lay_out(feeds)
        region = self._room(needed, deadline)
        region.put(spots, feeds)
        answer = self._answer("run", Run(part, spots, dict(options)).written(), deadline)
        self._wanted = max(self._wanted, answer.roomy)
        if answer.needed:
            region = self._room(answer.needed, deadline)
            answer = self._answer("collect", {}, deadline)
            if answer.needed:
                raise ProtocolError(f"it needs {answer.needed} bytes in a region of {region.size}")
        return {spot.name: region.take(spot) for spot in answer.outputs}

    def _room(self, needed: int, deadline: Deadline | None) -> Region:
        """A region that is large enough; as large as is wanted, where there is room for that."""
        region = self._region
        assert region is not None
        if self._wanted > max(needed, region.size):
            try:
                return self._widen(self._wanted, deadline)
            except RunError:
                self._wanted = 0
        return region if needed <= region.size else self._widen(needed, deadline)

    def _widen(self, size: int, deadline: Deadline | None) -> Region:
        """Another region, at both ends."""
        old, new = self._region, Region.create(size)
        self._region = new
        try:
            self._call("attach", to_plain(Attach(str(new.path), new.size)), deadline)
        finally:
            new.forget_name()
            if old is not None:
                old.close()
        return new

    def _close_region(self) -> None:
        if self._region is not None:
            self._region.close()

    def _answer(self, job: str, arguments: dict[str, Any], deadline: Deadline | None) -> Answer:
        answer = Answer.read(self._call(job, arguments, deadline))
        if answer.rebuilt < self.rebuilt:
            raise ProtocolError(f"it counts backwards: {answer}")
        self.rebuilt = answer.rebuilt
        return answer

    def _call(self, job: str, arguments: dict[str, Any], deadline: Deadline | None = None) -> dict[str, Any]:
        return self._worker.call(job, arguments, seconds=None if deadline is None else deadline.left())
