"""Numbers and names in native text, explained."""

from __future__ import annotations

import re
from functools import cache

from hexport.facts.load import ErrorCode, error_codes

_NAME = re.compile(r"\bQNN_[A-Z_]+\b")
# "Error code: 1002", "error code 3110", "fails with error 1002", "status: 0x36b1", "err=6031"
_RESULT = re.compile(
    r"\b(?<!exit )(?:error|err|status|result)(?:[ _-]?code)?\s*(?:[:=]|is|was)?\s*"
    r"(0x[0-9a-f]+|\d{3,20})\b",
    re.IGNORECASE,
)
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?|return(?:ed)?)(?: with)?(?: a)?(?:[ _-]?(?:code|status))?\s*[:=]?\s*(-?\d+)", re.I
)
_SIGNAL = re.compile(r"\bSIG[A-Z]+\b")


def error_code(number: int) -> ErrorCode | None:
    """What is known of a QNN result or a process's exit code."""
    return _by_number("qnn").get(number & 0xFFFF if number > 0 else number) or _by_number("exit").get(number)


def explain(text: str) -> list[ErrorCode]:
    """The codes that occur in native text, each once, in the order they occur."""
    found: list[tuple[int, ErrorCode]] = []
    for pattern, look_up in (
        (_NAME, _name_to_code),
        (_SIGNAL, _name_to_code),
        (_RESULT, _result_to_code),
        (_EXIT, _exit_to_code),
    ):
        for match in pattern.finditer(text):
            code = look_up(match[match.lastindex or 0])
            if code:
                found.append((match.start(), code))
    found.sort(key=lambda item: item[0])
    return list({(code.kind, code.number): code for _, code in found}.values())


@cache
def _by_number(kind: str) -> dict[int, ErrorCode]:
    return {code.number: code for code in error_codes() if code.kind == kind}


@cache
def _by_text() -> dict[str, ErrorCode]:
    return {name: code for code in error_codes() for name in (code.name, *code.aliases)}


def _name_to_code(name: str) -> ErrorCode | None:
    return _by_text().get(name)


def _result_to_code(digits: str) -> ErrorCode | None:
    # The high bits of a QNN result are the library's own bookkeeping.
    return _by_number("qnn").get(int(digits, 0 if digits[:2].lower() == "0x" else 10) & 0xFFFF)


def _exit_to_code(digits: str) -> ErrorCode | None:
    number = int(digits)
    # A shell reports death by signal n as 128 + n, Python as -n.
    return _by_number("exit").get(number) or _by_number("exit").get(128 - number)
