"""Sessions in this process: opened when first used, made anew when the NPU was lost."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hexport import facts
from hexport.backend import failures as backend_failures
from hexport.backend.calling import cure
from hexport.backend.sessions import PROVIDER, add_entries, import_onnxruntime, make_session
from hexport.runtime.failures import BadInput, EngineLost, InferenceFailed, RunError, SessionClosed
from hexport.runtime.parts import Part
from hexport.toolchain.failures import WorkerError
from hexport.toolchain.serving import JobError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hexport.runtime.deadline import Deadline

    Array = NDArray[Any]

_QUIET = 3
"""Errors only: what else a session says is for whoever made the package."""
_SHARING = threading.Lock()
"""The provider shares contexts by process: one group at a time is opened."""


class Engine(Protocol):
    """Runs parts; safe to call from several threads."""

    def add(self, parts: Iterable[Part]) -> None:
        """Make them known; those that are known already are left alone."""

    def run(
        self,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        deadline: Deadline | None = None,
        /,
    ) -> dict[str, Array]:
        """The outputs of one part, by name; an engine that can be ended keeps the deadline."""

    def close(self) -> None:
        """Free everything. Safe to call twice."""

    @property
    def rebuilt(self) -> int:
        """How often everything had to be made anew."""


@dataclass(frozen=True)
class _Open:
    session: Any
    inputs: tuple[str, ...]
    defaults: tuple[str, ...]
    """Inputs with a value of their own, which the caller may replace."""
    outputs: tuple[str, ...]
    names: frozenset[str]
    """The inputs once more, to compare with."""
    before: _Open | None = None
    """The session opened before it, of those that share weights: it must outlive this one, also when a
    request holds on to this one while the engine is closed."""


class InProcess:
    """The engine without a process of its own: nothing is copied, and a native crash is the caller's."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._open: dict[str, _Open] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.rebuilt = 0

    def add(self, parts: Iterable[Part]) -> None:
        with self._lock:
            for part in parts:
                self._parts.setdefault(part.name, part)

    def open(self, part: str) -> None:
        """Make the session now that the first run would make."""
        self._opened(part)

    def run(
        self,
        part: str,
        feeds: Mapping[str, Array],
        options: Mapping[str, str],
        _: Deadline | None = None,
        places: Mapping[str, Array] | None = None,
        /,
    ) -> dict[str, Array]:
        """The outputs; or none, when they were written to ``places`` of their shapes."""
        generation = self.rebuilt
        found = self._open.get(part) or self._opened(part)
        try:
            return _run(found, feeds, options, places)
        except EngineLost:
            again = self._again(part, generation)
        return _run(again, feeds, options, places)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    def _again(self, part: str, generation: int) -> _Open:
        """After the NPU was lost: one thread makes everything anew, the others take what it made."""
        with self._lock:
            if self.rebuilt == generation:
                self._drop()
                self.rebuilt += 1
            return self._opened(part)

    def _opened(self, name: str) -> _Open:
        with self._lock:
            if self._closed:
                raise SessionClosed("the session was closed", next="load the package again")
            if name not in self._open:
                part = self._parts[name]
                if part.group:
                    self._open_group([one for one in self._parts.values() if one.group == part.group])
                else:
                    self._open[name] = _open(part, {})
            return self._open[name]

    def _open_group(self, parts: list[Part]) -> None:
        """Sessions that share weights; the last ends the sharing, so that whoever comes next starts clean."""
        opened: dict[str, _Open] = {}
        before: _Open | None = None
        with _SHARING:
            for part in parts:
                entries = {"ep.share_ep_contexts": "1"}
                if part is parts[-1]:
                    entries["ep.stop_share_ep_contexts"] = "1"
                before = opened[part.name] = _open(part, entries, before)
        self._open |= opened  # all or none

    def _drop(self) -> None:
        """The last first: the first of a group holds what the others share."""
        for name in reversed(list(self._open)):
            del self._open[name]


def _open(part: Part, entries: dict[str, str], before: _Open | None = None) -> _Open:
    try:
        ort = import_onnxruntime()
        options = ort.SessionOptions()
        options.log_severity_level = _QUIET
        add_entries(options, entries)
        session = make_session(ort, part.model, "", part.provider_options, options)
    except JobError as error:
        raise typed(error.kind, error.text, f"{part.model} could not be loaded") from error
    if part.provider_options and not any(
        found.ep_name == PROVIDER for found in session.get_provider_graph_assignment_info()
    ):
        raise backend_failures.BackendNotInitialised(
            f"nothing of {part.model} is on the backend", why="it did not start", next="run `hexport doctor`"
        )
    values = (session.get_inputs(), session.get_overridable_initializers(), session.get_outputs())
    inputs, defaults, outputs = (tuple(value.name for value in some) for some in values)
    return _Open(session, inputs, defaults, outputs, frozenset(inputs), before)


def _run(
    found: _Open, feeds: Mapping[str, Array], options: Mapping[str, str], places: Mapping[str, Array] | None
) -> dict[str, Array]:
    given = feeds if feeds.keys() == found.names else _given(found, feeds)
    try:
        chosen = [_run_options(options)] if options else []
        if places is not None:
            _run_into(found.session, given, chosen, places)
            return {}
        results = found.session.run(None, given, *chosen)
    except MemoryError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if facts.find_loss(text) is not None:
            raise EngineLost(
                "the NPU was lost, and again after the sessions were made anew",
                why=text,
                next=cure(text) or "restart the program; if it happens again, the model crashes the NPU",
            ) from error
        raise InferenceFailed("the model could not be run", why=text, next=cure(text)) from error
    return dict(zip(found.outputs, results, strict=True))


def _run_options(options: Mapping[str, str]) -> Any:
    chosen = import_onnxruntime().RunOptions()
    for key, value in options.items():
        chosen.add_run_config_entry(key, value)
    return chosen


def _run_into(
    session: Any, given: Mapping[str, Array], options: list[Any], places: Mapping[str, Array]
) -> None:
    """The model writes its outputs where they shall lie. ONNX Runtime refuses places of other shapes."""
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    for name, place in places.items():
        binding.bind_output(name, "cpu", 0, place.dtype.type, place.shape, place.ctypes.data)
    session.run_with_iobinding(binding, *options)


def _given(found: _Open, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """What the session takes of the feeds."""
    if missing := [name for name in found.inputs if name not in feeds]:
        raise BadInput(
            f"input {missing[0]!r} is missing",
            why="the original has a value of its own for it, and what was compiled does not",
            next="give it",
        )
    return {name: feeds[name] for name in (*found.inputs, *found.defaults) if name in feeds}


def typed(kind: str, text: str, what: str) -> RunError | WorkerError:
    """The error that a name stands for, here or in a worker."""
    known = getattr(backend_failures, kind, None)
    if isinstance(known, type) and issubclass(known, WorkerError):
        return known(what, why=text, next=cure(text) or "run `hexport doctor`")
    return InferenceFailed(what, why=f"{kind}: {text}", next=cure(text))
