"""An NPU that gets lost: sessions are made anew, once, and those that share weights in their order."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hexport import facts
from hexport.errors import HexportError
from hexport.runtime import engine, house
from hexport.runtime.engine import InProcess
from hexport.runtime.failures import EngineLost, InferenceFailed
from hexport.runtime.isolated import Isolated
from hexport.runtime.parts import Part
from hexport.toolchain import WorkerCrashed
from hexport.toolchain.serving import JobError


class FakeSessions:
    """Stands for a device: sessions are made in order, and may lose the NPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lose: int = 0, unfit: str = "") -> None:
        self.events: list[str] = []
        self.lose = lose
        self.unfit = unfit
        """A model that no session can be made from."""
        self.words = "[ONNXRuntimeError] : 5 : ENGINE_ERROR : the DSP is gone"
        self.lock = threading.Lock()
        monkeypatch.setattr(engine, "make_session", self.make)

    def make(self, _: Any, model: str, *given: Any) -> Any:
        if model == self.unfit:
            raise JobError("CompileFailed", "it does not load")
        keys = ("ep.share_ep_contexts", "ep.stop_share_ep_contexts")
        entries = [key for key in keys if _entry(given[-1], key)]
        self.events.append(f"open {model} {len(entries)}")
        return _FakeSession(self, model)


def _entry(options: Any, key: str) -> str:
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return ""


class _Named:
    def __init__(self, name: str) -> None:
        self.name = self.ep_name = name


class _FakeSession:
    def __init__(self, device: FakeSessions, model: str) -> None:
        self.device, self.model = device, model

    def get_provider_graph_assignment_info(self) -> list[_Named]:
        return [_Named("QNNExecutionProvider")]

    def get_inputs(self) -> list[_Named]:
        return [_Named("x")]

    get_outputs = get_inputs

    def get_overridable_initializers(self) -> list[_Named]:
        return []

    def run(self, _: None, feeds: dict[str, Any]) -> list[Any]:
        with self.device.lock:
            if self.device.lose:
                self.device.lose -= 1
                raise RuntimeError(self.device.words)
        return [feeds["x"] * 2]

    def __del__(self) -> None:
        self.device.events.append(f"close {self.model}")


def shared(name: str) -> InProcess:
    """Three parts that share their weights."""
    found = InProcess()
    found.add([Part(f"p{i}", f"{name}{i}", {"backend_type": "htp"}, f"{name}.bin") for i in range(3)])
    return found


@pytest.fixture
def group() -> Iterator[InProcess]:
    found = shared("m")
    yield found
    found.close()


def test_sessions_that_share_weights_open_together_and_close_last_first(
    group: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeSessions(monkeypatch)
    assert group.run("p1", {"x": np.ones(2)}, {})["x"].tolist() == [2, 2]
    assert device.events == ["open m0 1", "open m1 1", "open m2 2"]
    group.close()
    gc.collect()
    assert device.events[3:] == ["close m2", "close m1", "close m0"]


def test_a_request_under_way_keeps_the_order_of_closing(
    group: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is closed while a thread still runs the last session: the others must not go before it."""
    device, begun, go_on = FakeSessions(monkeypatch), threading.Event(), threading.Event()
    group.run("p2", {"x": np.ones(1)}, {})
    plain = _FakeSession.run

    def held(self: Any, *arguments: Any) -> list[Any]:
        begun.set()
        assert go_on.wait(60)
        return plain(self, *arguments)

    monkeypatch.setattr(_FakeSession, "run", held)
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(group.run, "p2", {"x": np.full(1, 4)}, {})
        assert begun.wait(60)
        group.close()
        assert [event for event in device.events if event.startswith("close")] == []
        go_on.set()
        assert future.result(60)["x"].tolist() == [8]
        del future
    gc.collect()
    assert device.events[3:] == ["close m2", "close m1", "close m0"]


@pytest.mark.parametrize("first", [0, 1])
def test_groups_are_closed_in_any_order(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeSessions(monkeypatch)
    engines = [shared("a"), shared("b")]
    for one in engines:
        one.run("p0", {"x": np.ones(1)}, {})
    engines[first].close()
    assert engines[1 - first].run("p1", {"x": np.ones(1)}, {})["x"].tolist() == [2]
    engines[1 - first].close()
    gc.collect()
    names = ["ab"[first], "ab"[1 - first]]
    assert device.events[6:] == [f"close {name}{i}" for name in names for i in (2, 1, 0)]


def test_a_group_opens_whole_or_not_at_all(group: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeSessions(monkeypatch, unfit="m2")
    with pytest.raises(HexportError, match="could not be loaded"):
        group.run("p0", {"x": np.ones(1)}, {})
    gc.collect()
    assert device.events == ["open m0 1", "open m1 1", "close m1", "close m0"]
    device.unfit = ""
    assert group.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]
    assert device.events[4:] == ["open m0 1", "open m1 1", "open m2 2"]


@pytest.mark.parametrize("loss", facts.losses(), ids=lambda loss: loss.text)
def test_every_known_loss_is_answered_with_new_sessions(
    loss: facts.Loss, group: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeSessions(monkeypatch, lose=1)
    device.words = f"Status Message: {loss.text} and more"
    assert group.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]
    assert group.rebuilt == 1


def test_a_lost_npu_is_made_anew_once(group: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeSessions(monkeypatch, lose=1)
    found = group
    assert found.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]
    assert found.rebuilt == 1
    assert len([event for event in device.events if event.startswith("open")]) == 6
    device.lose = 2
    with pytest.raises(EngineLost, match="again") as caught:
        found.run("p0", {"x": np.ones(1)}, {})
    assert "ENGINE_ERROR" in caught.value.why
    assert found.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]


def test_an_npu_lost_under_several_threads_answers_all(
    group: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSessions(monkeypatch, lose=4)
    found = group
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(found.run, f"p{i % 3}", {"x": np.full(1, i)}, {}) for i in range(12)]
        answers: list[float | None] = []
        for future in futures:
            try:
                answers.append(float(future.result(30)["x"][0]))
            except EngineLost:
                answers.append(None)
    assert all(answer in (2.0 * i, None) for i, answer in enumerate(answers))
    assert answers.count(None) <= 2


def test_other_errors_are_not_tried_again(group: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSessions(monkeypatch)
    monkeypatch.setattr(
        _FakeSession, "run", lambda *_: (_ for _ in ()).throw(RuntimeError("INVALID_ARGUMENT"))
    )
    with pytest.raises(InferenceFailed, match="could not be run"):
        group.run("p0", {"x": np.ones(1)}, {})
    assert group.rebuilt == 0


class _FakeWorker:
    """Has made its sessions anew so many times when it answers, and dies after the last."""

    pid = 0

    def __init__(self, answers: list[int]) -> None:
        self._answers = answers

    def call(self, job: str, _: dict[str, Any], **__: Any) -> dict[str, Any]:
        if job != "run":
            return {}
        if not self._answers:
            raise WorkerCrashed("it died")
        return {"outputs": [], "counts": [0, self._answers.pop(0), 0]}

    def close(self) -> None:
        pass


def test_losses_inside_a_worker_are_counted_and_so_are_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = [[0, 1, 1], [0, 2, 2, 2]]
    monkeypatch.setattr(house, "Worker", lambda *_, **__: _FakeWorker(lives.pop(0)))
    alone = Isolated()
    alone.add([Part("part", "m.onnx")])
    counted = []
    for _ in range(6):
        alone.run("part", {}, {})
        counted.append(alone.rebuilt)
    assert counted == [0, 1, 1, 2, 4, 4]
    alone.close()
