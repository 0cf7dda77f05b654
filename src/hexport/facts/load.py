"""The data files beside this module as frozen dataclasses, each entry checked before it is believed.

A file that does not fit its dataclass is a defect of the installation, so it is reported with the file,
the entry and the field, and nothing of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from hexport.errors import HexportError
from hexport.records import RecordError, from_plain

T = TypeVar("T")


class FactsError(HexportError):
    """A data file of hexport itself is damaged."""

    code = "HX101"


@dataclass(frozen=True)
class Soc:
    """A chip that can be compiled for."""

    soc_model: int
    chip: str
    htp_arch: int
    float: bool
    """fp16 graphs run on its NPU; without it only quantised ones do."""
    source: str
    names: tuple[str, ...] = ()
    """What it is sold as."""
    vtcm_mb: int | None = None
    """Unknown when None: the compiler does not report it for this chip."""
    note: str = ""
    names_source: str = ""


@dataclass(frozen=True)
class Release:
    """A release of onnxruntime-qnn and the QNN SDK inside it."""

    version: str
    sdk: str
    platforms: tuple[str, ...]
    """Where PyPI has a wheel of it."""
    source: str


@dataclass(frozen=True)
class Rule:
    """What must fit with what, for releases from ``since`` up to but not including ``before``."""

    id: str
    statement: str
    symptom: str
    cure: str
    source: str
    needs: str = ""
    """``"<thing> <op> <version>"`` or ``"<thing> absent"``; empty when no program can tell."""
    since: str = ""
    before: str = ""
    platforms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of_form(self.needs, r"(?:\w+ (?:>=|<=|<) (?:\d[\d.]*|\{sdk\})|\w+ absent)?", "needs")


OPTION_KINDS = ("provider", "session", "run", "dynamic")
OPTION_TYPES = ("bool", "enum", "int", "ints", "path", "text", "socs", "archs")


@dataclass(frozen=True)
class Option:
    """A key that onnxruntime or its QNN provider reads."""

    key: str
    kind: str
    type: str
    meaning: str
    source: str
    values: tuple[str, ...] = ()
    newer_values: Mapping[str, str] = field(default_factory=dict)
    """Values that only came with a later release -> that release."""
    default: str = ""
    minimum: int | None = None
    min_arch: int | None = None
    """The first HTP generation that has it."""
    min_soc_model: int | None = None
    """The first chip id the provider takes it for."""
    platforms: tuple[str, ...] = ()
    """Where it has an effect; empty for everywhere."""
    since: str = ""
    """The first onnxruntime-qnn release known to read it; empty for older than 2.0."""
    list_since: str = ""
    """The first release that takes several values, separated by commas."""
    replaced_by: str = ""
    """The key that does this now; this one is no longer read."""
    caution: str = ""

    def __post_init__(self) -> None:
        one_of(self.kind, OPTION_KINDS, "kind")
        one_of(self.type, OPTION_TYPES, "type")
        if (self.type in ("enum", "archs")) != bool(self.values):
            raise RecordError(f"{self.key}: values belong to types enum and archs, and only to them")
        if unlisted := sorted(set(self.newer_values) - set(self.values)):
            raise RecordError(f"{self.key}.newer_values: {unlisted[0]!r} is not among its values")


@dataclass(frozen=True)
class Combination:
    """Options that only go together in one way: what holds, what must hold with it, what must not.

    ``when`` (all of it) and ``forbids`` look at what was given: ``"key=value"``, or ``"key"`` for any
    value. ``needs`` counts defaults too: ``"key=value"``, or ``"key"`` for anything but its default.
    With neither ``needs`` nor ``forbids``, what ``when`` describes is refused by itself.
    """

    when: tuple[str, ...]
    why: str
    source: str
    needs: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    since: str = ""


@dataclass(frozen=True)
class ErrorCode:
    """A number that native code leaves behind."""

    number: int
    name: str
    meaning: str
    cure: str
    source: str
    kind: str = "qnn"
    """``qnn`` for a QNN API result, ``exit`` for how a process ended."""
    aliases: tuple[str, ...] = ()
    """Other names of the same number."""

    def __post_init__(self) -> None:
        one_of(self.kind, ("qnn", "exit"), "kind")


@dataclass(frozen=True)
class Advice:
    """Why a node was left to the CPU, and what would bring it to the NPU."""

    cause: str
    advice: str
    source: str
    match: str = ""
    """A regular expression searched for in the backend's reason, ignoring case; empty fits all."""
    ops: tuple[str, ...] = ()
    """The operators it is about; empty for all."""
    rewrite: str = ""
    """The rewrite that does it; empty when none can."""
    without_float: bool = False
    """Only for targets whose NPU has no float."""
    foreign_domain: bool = False
    """Only for operators that are neither ONNX's nor onnxruntime's."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.match)
        except re.error as error:
            raise RecordError(f"match: not a regular expression: {error}") from error


def read_table(text: str, file: str, table: str, kind: type[T]) -> tuple[T, ...]:
    """The ``[[table]]`` entries of a TOML text as ``kind``; ``file`` is only for messages."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _damaged(f"{file}: not TOML: {error}") from error
    entries = document.get(table)
    if not isinstance(entries, list) or not entries:
        raise _damaged(f"{file}: no [[{table}]] entries")
    return tuple(_record(entry, f"{file}: {table}[{i}]", kind) for i, entry in enumerate(entries))


def _record(entry: object, where: str, kind: type[T]) -> T:
    try:
        return from_plain(kind, entry, where)
    except RecordError as error:
        detail = str(error)
        # What a dataclass refuses about itself does not know its place in the file.
        raise _damaged(detail if where in detail else f"{where}: {detail}") from error


def _damaged(why: str) -> FactsError:
    return FactsError("a data file of hexport is damaged", why=why, next="reinstall hexport")


def one_of(value: str, allowed: tuple[str, ...], name: str) -> None:
    if value not in allowed:
        raise RecordError(f"{name}: {value!r} is none of {', '.join(allowed)}")


def _one_of_form(value: str, pattern: str, name: str) -> None:
    if not re.fullmatch(pattern, value):
        raise RecordError(f"{name}: {value!r} has not the form that is checked")


def read_entries(file: str, table: str, kind: type[T]) -> tuple[T, ...]:
    # importlib.resources does the same; importing it takes longer than everything else here.
    import pkgutil

    data = pkgutil.get_data("hexport.facts", file)
    if data is None:
        raise _damaged(f"{file}: cannot be read")
    return read_table(data.decode("utf-8"), file, table, kind)


@cache
def targets() -> tuple[Soc, ...]:
    """Every chip hexport can compile for."""
    return read_entries("socs.toml", "soc", Soc)


@cache
def releases() -> tuple[Release, ...]:
    """Every onnxruntime-qnn release with a known SDK, oldest first."""
    return read_entries("versions.toml", "release", Release)


@cache
def rules() -> tuple[Rule, ...]:
    """What must fit with what."""
    return read_entries("versions.toml", "rule", Rule)


@cache
def options() -> tuple[Option, ...]:
    """Every key that is read, and the documented ones that no longer are."""
    return read_entries("options.toml", "option", Option)


@cache
def combinations() -> tuple[Combination, ...]:
    """Options that only go together in one way."""
    return read_entries("options.toml", "combination", Combination)


@cache
def error_codes() -> tuple[ErrorCode, ...]:
    """Every number that can be explained."""
    return read_entries("error_codes.toml", "code", ErrorCode)


@cache
def advice() -> tuple[Advice, ...]:
    """Causes of CPU placement, the first that fits counts."""
    return read_entries("advice.toml", "advice", Advice)
