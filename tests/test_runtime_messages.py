"""Tensors between two processes: whatever the other side says, nothing outside the region is touched."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport.runtime import house, isolated
from hexport.runtime.failures import EngineLost, InferenceFailed, RunError
from hexport.runtime.messages import Answer, Run
from hexport.runtime.parts import Part
from hexport.runtime.serving import Server
from hexport.runtime.shared_region import Region, Spot, lay_out
from hexport.toolchain import Limits, WorkerError, WorkerProtocolError, protocol
from hexport.toolchain.protocol import Message, ProtocolError
from hexport.toolchain.serving import converse

SIZE = 4096
# Small ones, and such that no system has so much; what is between would really be taken.
numbers = st.integers(-70, 5000) | st.integers(-(2**70), -(2**60)) | st.integers(2**60, 2**70)
types = st.sampled_from(["<f4", "<f8", "|i1", "<i8", "|b1", "<f2", "<c16", ">u4"]) | st.sampled_from(
    ["O", "|O", "<U4", "|S3", "|V8", "f4,f4", "(9,)f4", "f3", "<M8[s]", "", "float32", "i99", "\x00"]
)
shapes = st.lists(st.integers(0, 40) | numbers, max_size=4) | st.just([1] * 40) | st.just([0, 2**62])
spots = st.builds(Spot, st.sampled_from("xyz"), types, shapes.map(tuple), numbers)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5) | types,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    made = Region.create(SIZE)
    yield made
    made.close()


@given(spots)
def test_a_place_is_inside_the_region_or_refused(region: Region, spot: Spot) -> None:
    try:
        view = region.view(spot)
    except ProtocolError:
        return
    whole = np.frombuffer(region._map, np.uint8)
    start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    assert view.size == 0 or (start == spot.offset and 0 <= start <= start + view.nbytes <= SIZE)
    assert (view.shape, view.dtype.str) == (spot.shape, np.dtype(spot.dtype).str)
    assert view.dtype.kind in "biufc"
    view[...] = 1
    assert region.take(spot).nbytes == view.nbytes


@pytest.mark.parametrize(
    "spot",
    [
        Spot("x", "<f4", (SIZE // 4 + 1,), 0),
        Spot("x", "|i1", (1,), SIZE),
        Spot("x", "<f4", (-1,), 0),
        Spot("x", "<f4", (-1, -1), 0),
        Spot("x", "<f4", (1,), -64),
        Spot("x", "<f4", (1,), 1),
        Spot("x", "<f4", (2**40, 2**40), 0),
        Spot("x", "<f4", (0, 2**70), 0),
        Spot("x", "|O", (1,), 0),
    ],
    ids=str,
)
def test_places_that_are_none(region: Region, spot: Spot) -> None:
    with pytest.raises(ProtocolError):
        region.view(spot)
    with pytest.raises(ProtocolError):
        region.put([spot], {"x": np.ones(1, np.float32)})


def test_what_is_no_region(region: Region, tmp_path: Any) -> None:
    for path, size in ((region.path, SIZE + 1), (region.path, 0), (region.path, -1)):
        with pytest.raises(ProtocolError, match="no region"):
            Region.attach(path, size)
    short = tmp_path / "short"
    short.write_bytes(b"x" * 10)
    with pytest.raises(ProtocolError, match="no region"):
        Region.attach(short, 11)


@given(st.lists(spots, max_size=3), st.text(), st.dictionaries(st.text(), st.text(), max_size=2))
def test_what_is_written_is_read(places: list[Spot], part: str, options: dict[str, str]) -> None:
    run, answer = Run(part, tuple(places), options), Answer(tuple(places), 1, 2, 3)
    plain = protocol.read(io.BytesIO(protocol.encode(Message("job", run.written()))))
    assert plain is not None
    assert Run.read(plain.body) == run
    plain = protocol.read(io.BytesIO(protocol.encode(Message("result", answer.written()))))
    assert plain is not None
    assert Answer.read(plain.body) == answer


# ---------------------------------------------------------------- a worker with a broken parent


class Doubling:
    """Stands for the engine of a worker."""

    rebuilt = 0

    def add(self, parts: Any) -> None:
        pass

    open = add

    def run(self, _: str, feeds: Any, *__: Any) -> dict[str, Any]:
        if "x" not in feeds:
            raise InferenceFailed("x is missing")
        return {"y": np.asarray(feeds["x"]) * 2}

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def server(region: Region) -> Server:
    made = Server()
    made._engine = Doubling()  # type: ignore[assignment]
    made.add({"parts": [{"name": "part", "model": "m.onnx", "provider_options": {}, "group": ""}]})
    made.attach({"path": str(region.path), "size": SIZE})
    return made


def said(server: Server, *jobs: tuple[str, dict[str, Any]]) -> list[Message]:
    """What the worker answers."""
    asked = b"".join(
        protocol.encode(Message("job", {"number": number, "job": name, "arguments": arguments}))
        for number, (name, arguments) in enumerate(jobs)
    )
    replies = io.BytesIO()
    assert converse(server.jobs(), io.BytesIO(asked), replies)
    replies.seek(0)
    return [message for _ in jobs if (message := protocol.read(replies)) is not None]


names = st.sampled_from(["run", "run", "collect", "attach", "add", "open", "none"])
bodies = st.dictionaries(
    st.sampled_from(["part", "parts", "inputs", "options", "path", "size", "more"]), values, max_size=4
)
runs = st.builds(
    lambda part, places, options: Run(part, tuple(places), options).written(),
    st.sampled_from(["part", "other"]),
    st.lists(spots, max_size=2),
    st.just({}) | st.just({"a": "b"}),
)


@given(st.lists(st.tuples(names, bodies) | st.tuples(st.just("run"), runs), max_size=4))
def test_a_worker_answers_whatever_it_is_asked(
    region: Region, server: Server, jobs: list[tuple[str, dict[str, Any]]]
) -> None:
    x = {"x": np.arange(5, dtype=np.float32)}
    places, _ = lay_out(x)
    good = ("run", Run("part", places, {}).written())
    replies = said(server, *jobs)
    assert [reply.kind in ("result", "error") for reply in replies] == [True] * len(jobs)
    region.put(places, x)
    (last,) = said(server, good)
    (place,) = Answer.read(last.body["result"]).outputs
    np.testing.assert_array_equal(region.take(place), x["x"] * 2)


@pytest.mark.parametrize(
    ("job", "arguments"),
    [
        ("run", {"part": "part", "inputs": [["x", "<f4", [SIZE], 0]], "options": {}}),
        ("run", {"part": "other", "inputs": [], "options": {}}),
        ("run", {"part": "part", "inputs": [["x", "<f4"]], "options": {}}),
        ("run", {"part": "part", "inputs": [], "options": {"a": 1}}),
        ("run", {}),
        ("open", {"part": "other"}),
        ("add", {"parts": [{"name": 1}]}),
        ("attach", {"path": "/", "size": "many"}),
    ],
)
def test_a_worker_says_that_it_was_the_message(server: Server, job: str, arguments: dict[str, Any]) -> None:
    (reply,) = said(server, (job, arguments))
    assert (reply.kind, reply.body["kind"]) == ("error", "WorkerProtocolError")
    assert reply.body["text"]


def test_a_worker_without_a_region(server: Server) -> None:
    bare = Server()
    bare._engine, bare._known = server._engine, {"part"}
    (reply,) = said(bare, ("run", Run("part", (), {}).written()))
    assert "no region yet" in reply.body["text"]


# ---------------------------------------------------------------- a session with a broken worker


class Broken:
    """A worker that answers a run with whatever it is told to."""

    pid = 0
    answer: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def call(self, job: str, _: dict[str, Any], **__: Any) -> dict[str, Any]:
        return dict(type(self).answer) if job in ("run", "collect") else {}

    def close(self) -> None:
        pass


answers = st.dictionaries(st.sampled_from(["outputs", "counts", "more"]), values) | st.builds(
    lambda places, *counts: Answer(tuple(places), *counts).written(), st.lists(spots), *[numbers] * 3
)


@pytest.fixture(scope="module")
def tenant() -> Iterator[house.House]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "Worker", Broken)
        made = house.House(Limits(), None)
        yield made
        made.close()


@given(answers)
def test_a_session_has_arrays_or_a_typed_error(tenant: house.House, answer: dict[str, Any]) -> None:
    Broken.answer = answer
    tenant.rebuilt = 0
    try:
        outputs = tenant.ask("part", {"x": np.ones(3)}, {}, None)
    except (WorkerProtocolError, RunError):
        return
    places = {place.name: place for place in Answer.read(answer).outputs}
    assert {name: array.shape for name, array in outputs.items()} == {
        name: place.shape for name, place in places.items()
    }


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"outputs": [], "counts": [0, 0]},
        {"outputs": [], "counts": [0, -1, 0]},
        {"outputs": [], "counts": [10, 0, 0]},
        {"outputs": [["y", "<f4", [2**30], 0]], "counts": [0, 0, 0]},
        {"outputs": [["y", "|O", [1], 0]], "counts": [0, 0, 0]},
        {"outputs": [], "counts": [0, 0, 0], "more": 1},
    ],
    ids=str,
)
def test_a_worker_that_makes_no_sense_is_replaced_once(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "Worker", Broken)
    Broken.answer = answer
    engine = isolated.Isolated()
    engine.add([Part("part", "m.onnx")])
    with pytest.raises(EngineLost) as caught:
        engine.run("part", {"x": np.ones(3)}, {})
    assert "makes no sense" in caught.value.why
    assert isinstance(caught.value.__cause__, WorkerError)
    assert engine.rebuilt == 1
    engine.close()


@pytest.mark.parametrize("kind", ["annotations", "HexportError", "getattr", "", "WorkerProtocolError"])
def test_names_of_errors_are_only_names(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker says which error it had; what it says is looked up among errors, and nowhere else."""
    from hexport.toolchain import JobFailed

    def fail(*_: Any, **__: Any) -> dict[str, Any]:
        raise JobFailed(kind, "the reason")

    monkeypatch.setattr(house, "Worker", Broken)
    engine = isolated.Isolated()
    engine.add([Part("part", "m.onnx")])
    Broken.answer = {"outputs": [], "counts": [0, 0, 0]}
    assert engine.run("part", {}, {}) == {}
    monkeypatch.setattr(Broken, "call", fail)
    with pytest.raises(RunError):
        engine.run("part", {}, {})
    engine.close()
