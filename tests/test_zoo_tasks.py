"""The figures of the quantisation benchmark: what a model's user would decide."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport import zoo

sys.path.append(str(Path(__file__).parents[1] / "bench"))
tasks: Any = importlib.import_module("zoo_tasks")

Array = np.ndarray[Any, np.dtype[Any]]


def scores(letters: list[int], of: int = 6) -> Array:
    """A line's answer, in which each step is sure of its letter."""
    return np.eye(of, dtype=np.float32)[letters][None]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([0, 0, 0], ()),
        ([1, 1, 2, 2, 2], (1, 2)),
        ([1, 0, 1], (1, 1)),
        ([0, 3, 3, 0, 0, 3, 4, 0], (3, 3, 4)),
    ],
)
def test_ctc_reads_repetitions_once_and_no_blanks(steps: list[int], text: tuple[int, ...]) -> None:
    assert tasks.ctc_text(scores(steps)[0]) == text


@given(st.lists(st.integers(1, 5), max_size=12), st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_ctc_gives_back_what_was_written(letters: list[int], lengths: list[int]) -> None:
    steps = [0]
    for letter, length in zip(letters, lengths, strict=False):
        steps += [letter] * length + [0]
    assert tasks.ctc_text(scores(steps)[0]) == tuple(letters)


def test_a_line_counts_as_a_whole() -> None:
    same_but_later = (scores([1, 1, 2, 0]), scores([0, 1, 2, 2]))
    one_letter_off = (scores([1, 1, 2, 0]), scores([1, 1, 3, 0]))
    assert tasks.same_text([same_but_later]) == 1.0
    assert tasks.same_text([same_but_later, one_letter_off]) == 0.5


def test_classes_are_counted_row_by_row() -> None:
    old = np.array([[0.1, 0.9], [0.8, 0.2]])
    assert tasks.same_class([(old, old * 3)]) == 1.0
    assert tasks.same_class([(old, old[::-1].copy())]) == 0.0
    assert tasks.same_class([(old, np.array([[0.4, 0.6], [0.4, 0.6]]))]) == 0.5


def test_the_nearest_is_by_direction_and_never_itself() -> None:
    rows = np.array([[1.0, 0.0], [50.0, 1.0], [0.0, 1.0], [0.1, 3.0]])
    assert tasks.nearest(rows).tolist() == [1, 0, 3, 2]


@given(st.floats(0.01, 100))
def test_neighbours_do_not_depend_on_length(factor: float) -> None:
    rows = np.random.default_rng(5).standard_normal((9, 16))
    assert tasks.same_neighbour([(row[None], row[None] * factor) for row in rows]) == 1.0


def test_neighbours_that_change_are_counted() -> None:
    before = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    after = before[[0, 2, 1, 3]]
    expected = float(np.mean(tasks.nearest(before) == tasks.nearest(after)))
    assert expected < 1.0
    assert tasks.same_neighbour(list(zip(before, after, strict=True))) == expected


def test_speech_is_over_one_half() -> None:
    pairs = [(np.array([[0.9]]), np.array([[0.51]])), (np.array([[0.2]]), np.array([[0.7]]))]
    assert tasks.same_speech(pairs) == 0.5


def test_an_empty_map_agrees_on_the_ground_but_overlaps_nothing() -> None:
    old = np.zeros((1, 1, 10, 10))
    old[..., :2, :5] = 0.8
    assert tasks.same_pixels([(old, np.zeros_like(old))]) == pytest.approx(1 - old.astype(bool).mean())
    assert tasks.text_overlap([(old, np.zeros_like(old))]) == 0.0
    assert tasks.text_overlap([(old, old * 0.5)]) == 1.0
    assert tasks.text_overlap([(np.zeros_like(old), np.zeros_like(old))]) == 1.0


def test_pixels_are_cut_at_three_tenths() -> None:
    old = np.array([[0.29, 0.31, 0.5, 0.0]])
    new = np.array([[0.31, 0.29, 0.31, 0.29]])
    assert tasks.same_pixels([(old, new)]) == 0.5


@pytest.mark.parametrize(
    "figure", ["same_text", "same_class", "same_neighbour", "same_speech", "same_pixels", "text_overlap"]
)
def test_a_broken_answer_agrees_with_nothing(figure: str) -> None:
    """Neither one that is not a number, nor one of another shape, nor none."""
    measure = getattr(tasks, figure)
    lines = [scores([1, 2, 3]), scores([2, 2, 1]), scores([4, 0, 5])]
    assert measure([(line, line) for line in lines]) == 1.0
    for broken in (np.full_like(lines[0], np.nan), lines[0][:, :2], np.empty(0)):
        assert measure([(line, broken) for line in lines]) == 0.0


def test_every_kind_with_a_task_is_in_the_zoo() -> None:
    kinds = {zoo.entry(name).kind for name in zoo.names()}
    with_task = [kind for kind in kinds if tasks.task_of(kind)]
    assert set(tasks._TASKS) == set(with_task)


def test_figures_are_from_the_output_that_decides() -> None:
    row = np.array([[0.1, 0.9]])
    expected = [{"hidden": np.ones((1, 3)), "embedding": row}, {"hidden": np.ones((1, 3)), "embedding": -row}]
    got = [{"hidden": np.zeros((1, 3)), "embedding": one["embedding"]} for one in expected]
    assert tasks.task_of("sentences").measure(expected, got) == {"same neighbour": 1.0}
    missing = [{"hidden": one["hidden"]} for one in got]
    assert tasks.task_of("sentences").measure(expected, missing) == {"same neighbour": 0.0}
