"""How long it will still take, by a clock that the test turns."""

from __future__ import annotations

import time

import pytest

from hexport.cli import output
from hexport.quantization.pacing import Pace, telling_of_samples


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(time, "perf_counter", lambda: self.now)


def test_steps_still_to_come_take_as_long_as_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    pace = Pace(4)
    for seconds in (10, 20, 270, 5):
        clock.now += seconds
        said.append(pace.step())
    assert said == [
        "at most 3 steps, about 30 s, to go",
        "at most 2 steps, about 30 s, to go",
        "at most 1 steps, about 100 s, to go",
        "nearly done",
    ]


def test_all_passes_over_the_samples_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    tell = telling_of_samples(said.append, 3)
    for number in range(2):
        for done in (1, 2, 3):
            tell(done, number, 2)
            clock.now += 40
    assert said == [
        "calibrating: 1 of 3 samples, pass 1 of 2",
        "calibrating: 2 of 3 samples, pass 1 of 2; about 3 min to go",
        "calibrating: 3 of 3 samples, pass 1 of 2; about 2 min to go",
        "calibrating: 1 of 3 samples, pass 2 of 2; about 80 s to go",
        "calibrating: 2 of 3 samples, pass 2 of 2; about 40 s to go",
        "calibrating: 3 of 3 samples, pass 2 of 2; about 0 s to go",
    ]


def test_one_pass_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    tell = telling_of_samples(said.append, 5)
    tell(1, 0, 1)
    clock.now += 2
    tell(2, 0, 1)
    assert said == ["calibrating: 1 of 5 samples", "calibrating: 2 of 5 samples; about 6 s to go"]


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 110.0, 129.0, 131.0, 131.0, 150.0, 162.0, 162.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with output.telling("building m.onnx") as say:
        for now in ("a", "b", "c", "d", "e"):
            say(now)
    said = capsys.readouterr()
    assert said.err.splitlines() == ["building m.onnx: c", "building m.onnx: e"]
    assert not said.out
