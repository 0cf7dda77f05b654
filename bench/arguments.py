"""Forms of arguments that several benchmarks take."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from hexport import HexportError, facts


def listed(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """``a,b``, of these."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if wrong := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: there are {', '.join(allowed)}")
        return names

    return parse


def chip(text: str) -> str:
    """A chip by any of its names."""
    try:
        return facts.find_target(text).chip
    except HexportError as error:
        raise argparse.ArgumentTypeError(error.what) from error


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)
