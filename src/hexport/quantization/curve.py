"""The curve of cost against accuracy: the trials that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence

from hexport.quantization.candidates import Trial


def on_curve(tried: Sequence[Trial]) -> tuple[bool, ...]:
    """For each trial, whether what is as cheap comes less close, and what is as close costs more.

    By the CPU's figure, because every trial has one; what fails on the NPU is no offer.
    """
    points = [(trial.cost, -trial.cpu_db) for trial in tried]
    # One model is a trial on the CPU first, then one on the NPU: where that fails, neither is an offer.
    failed = {point for point, trial in zip(points, tried, strict=True) if trial.failure}
    best, least = set(), float("inf")
    for point in sorted(set(points) - failed):
        if point[1] < least:
            best.add(point)
            least = point[1]
    return tuple(point in best for point in points)
