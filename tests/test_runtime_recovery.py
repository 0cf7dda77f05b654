"""An NPU that gets lost: sessions are made anew, once, and those that share weights in their order."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hexport.runtime import engine
from hexport.runtime.engine import InProcess
from hexport.runtime.failures import EngineLost, InferenceFailed
from hexport.runtime.planning import Part


class FakeSessions:
    """Stands for a device: sessions are made in order, and may lose the NPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lose: int = 0) -> None:
        self.events: list[str] = []
        self.lose = lose
        self.lock = threading.Lock()
        monkeypatch.setattr(engine, "make_session", self.make)

    def make(self, _: Any, model: str, *given: Any) -> Any:
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
                raise RuntimeError("[ONNXRuntimeError] : 5 : ENGINE_ERROR : the DSP is gone")
        return [feeds["x"] * 2]

    def __del__(self) -> None:
        self.device.events.append(f"close {self.model}")


@pytest.fixture
def group() -> Iterator[tuple[InProcess, list[Part]]]:
    found = InProcess()
    parts = [Part(f"p{i}", f"m{i}", {"backend_type": "htp"}, "one.bin") for i in range(3)]
    found.add(parts)
    yield found, parts
    found.close()


def test_sessions_that_share_weights_open_together_and_close_last_first(
    group: tuple[InProcess, list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeSessions(monkeypatch)
    device_engine, _ = group
    assert device_engine.run("p1", {"x": np.ones(2)}, {})["x"].tolist() == [2, 2]
    assert device.events == ["open m0 1", "open m1 1", "open m2 2"]
    device_engine.close()
    gc.collect()
    assert device.events[3:] == ["close m2", "close m1", "close m0"]


def test_a_lost_npu_is_made_anew_once(
    group: tuple[InProcess, list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeSessions(monkeypatch, lose=1)
    found, _ = group
    assert found.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]
    assert found.rebuilt == 1
    assert len([event for event in device.events if event.startswith("open")]) == 6
    device.lose = 2
    with pytest.raises(EngineLost, match="again") as caught:
        found.run("p0", {"x": np.ones(1)}, {})
    assert "ENGINE_ERROR" in caught.value.why
    assert found.run("p0", {"x": np.ones(1)}, {})["x"].tolist() == [2]


def test_an_npu_lost_under_several_threads_answers_all(
    group: tuple[InProcess, list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSessions(monkeypatch, lose=4)
    found, _ = group
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


def test_other_errors_are_not_tried_again(
    group: tuple[InProcess, list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSessions(monkeypatch)
    monkeypatch.setattr(
        _FakeSession, "run", lambda *_: (_ for _ in ()).throw(RuntimeError("INVALID_ARGUMENT"))
    )
    with pytest.raises(InferenceFailed, match="could not be run"):
        group[0].run("p0", {"x": np.ones(1)}, {})
    assert group[0].rebuilt == 0
