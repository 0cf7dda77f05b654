"""Frozen dataclasses to and from plain data (JSON, TOML), strictly.

What crosses a process or comes from a file is checked here once, so that every room behind it can
trust its types: an unknown field, a missing one or a wrong type is an error that names the place.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

T = TypeVar("T")


class RecordError(ValueError):
    """The data does not have the shape of the record."""


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts, tuples to lists; what is already plain stays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], data: object, where: str = "") -> T:
    """Build a ``kind`` from plain data, or raise :class:`RecordError` naming the field."""
    result: T = _build(kind, data, where or kind.__name__)
    return result


@cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(kind)
    return {
        f.name: (
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(kind)
    }


def _build(kind: Any, data: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build_record(typing.cast("type", kind), data, where)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _build_optional(kind, data, where)
    if origin is tuple or origin is list:
        return _build_sequence(kind, data, where)
    if origin in (dict, Mapping):
        return _build_mapping(kind, data, where)
    if kind is Any or kind is object:
        return data
    if kind is float and type(data) is int:
        return float(data)
    # bool is an int in Python; a record's int field does not want True.
    if type(data) is not kind:
        raise RecordError(f"{where}: expected {_name(kind)}, found {type(data).__name__} {data!r}")
    return data


def _build_record(kind: type, data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: expected the fields of {kind.__name__}, found {type(data).__name__}")
    fields = _fields(kind)
    if unknown := sorted(set(data) - set(fields)):
        raise RecordError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(fields)}")
    missing = [name for name, (_, required) in fields.items() if required and name not in data]
    if missing:
        raise RecordError(f"{where}: field {missing[0]!r} is missing")
    return kind(**{name: _build(fields[name][0], item, f"{where}.{name}") for name, item in data.items()})


def _build_optional(kind: Any, data: object, where: str) -> Any:
    choices = get_args(kind)
    if data is None and type(None) in choices:
        return None
    problems = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _build(choice, data, where)
        except RecordError as error:
            problems.append(str(error))
    raise RecordError("; or ".join(problems) or f"{where}: nothing fits")


def _build_sequence(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
        raise RecordError(f"{where}: expected a list, found {type(data).__name__}")
    arguments = get_args(kind)
    if get_origin(kind) is list:
        return [_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)]
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if len(data) != len(arguments):
        raise RecordError(f"{where}: expected {len(arguments)} items, found {len(data)}")
    pairs = zip(arguments, data, strict=True)
    return tuple(_build(argument, item, f"{where}[{i}]") for i, (argument, item) in enumerate(pairs))


def _build_mapping(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise RecordError(f"{where}: expected a table, found {type(data).__name__}")
    key_kind, item_kind = get_args(kind)
    return {
        _build(key_kind, key, f"{where} key"): _build(item_kind, item, f"{where}.{key}")
        for key, item in data.items()
    }


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
