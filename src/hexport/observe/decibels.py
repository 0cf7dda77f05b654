"""Ratios in dB as programs and people are told them."""

from __future__ import annotations

from math import isfinite

USABLE_DB = 20.0
"""Less is a mistake somewhere, and not the rounding of fp16."""
USELESS_DB = 10.0
"""Less is of no use to anybody, whatever was asked for."""


def finite(value: float) -> float | str:
    """For JSON, which has no infinities."""
    return value if isfinite(value) else _word(value)


def decibels(value: float) -> str:
    """For people."""
    return f"{value:.1f} dB" if isfinite(value) else _word(value)


def _word(value: float) -> str:
    return "exact" if value > 0 else "broken"
