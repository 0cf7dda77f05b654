"""Ratios in dB as programs and people are told them."""

from __future__ import annotations

from math import isfinite


def finite(value: float) -> float | str:
    """For JSON, which has no infinities."""
    return value if isfinite(value) else _word(value)


def decibels(value: float) -> str:
    """For people."""
    return f"{value:.1f} dB" if isfinite(value) else _word(value)


def _word(value: float) -> str:
    return "exact" if value > 0 else "broken"
