"""Samples from Python: a callable, an iterable, or a calibration data reader of ONNX Runtime."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeGuard

import numpy as np

from hexport.errors import BadSamples, HexportError, UsageError
from hexport.quantization.data.fitting import Fitting
from hexport.quantization.data.sample import Found

_NAMED = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


class _Reader(Protocol):
    """ONNX Runtime's ``CalibrationDataReader``, or what looks like one."""

    def get_next(self) -> object: ...


class Live:
    """Whatever gives samples one after the other."""

    notes: tuple[str, ...] = ()

    def __init__(self, source: object, description: str, fitting: Fitting, count: int | None = None) -> None:
        self.description = description
        self.once = not isinstance(source, (list, tuple))
        """Only what is in memory already gives the same again; a data loader may shuffle."""
        self.count = len(source) if isinstance(source, (list, tuple)) else count
        self._source = source
        self._fitting = fitting

    @property
    def is_used_up(self) -> bool:
        """Whether it gives nothing any more once it was read; what is called gives its samples anew."""
        return isinstance(self._source, Iterator) or _is_reader(self._source)

    def read(self) -> Iterator[Found]:
        number = 0
        iterator: Iterator[object] | None = None
        while True:
            try:
                if iterator is None:
                    iterator = _iterate(self._source, self.description)
                value = next(iterator)
            except StopIteration:
                return
            except HexportError:
                raise
            except Exception as error:
                raise BadSamples(
                    f"{self.description}, sample {number}: it raised {type(error).__name__}",
                    why=str(error),
                    next="run it by itself to see where",
                ) from error
            yield Found(self._named(value, f"{self.description}, sample {number}"), self.description)
            number += 1

    def _named(self, value: object, where: str) -> dict[str, object]:
        """Arrays by input; without names they are in the model's order."""
        free = self._fitting.free
        if isinstance(value, Mapping):
            return {str(name): item for name, item in value.items()}
        items = list(value) if isinstance(value, (tuple, list)) else [value]
        if len(items) != len(free):
            raise BadSamples(
                f"{where}: {len(items)} array(s) without names",
                why=f"the model has the inputs {', '.join(free)}",
                next="give a dict of arrays by input name, or as many arrays as there are inputs",
            )
        if isinstance(value, (str, bytes)):
            raise BadSamples(
                f"{where}: a {type(value).__name__} is no array for input {free[0]!r}",
                next="give a dict of arrays by input name",
            )
        return dict(zip(free, items, strict=True))


def _iterate(source: object, description: str) -> Iterator[object]:
    """The samples of a reader, of what a callable returns, or of an iterable."""
    if _is_reader(source):
        return _drain(source.get_next)
    if isinstance(source, Iterable) and not isinstance(source, (str, bytes, Mapping, np.ndarray)):
        return iter(source)
    if callable(source):
        return _iterate(source(), description)
    raise BadSamples(
        f"{description} gives a {type(source).__name__}, which is no series of samples",
        next="give an iterable of dicts with an array an input, or a reader with get_next()",
    )


def _is_reader(source: object) -> TypeGuard[_Reader]:
    return callable(getattr(source, "get_next", None)) and not isinstance(source, type)


def _drain(get_next: Callable[[], object]) -> Iterator[object]:
    # iter(get_next, None) compares with ==, which arrays answer element by element.
    while (value := get_next()) is not None:
        yield value


def looks_named(text: str) -> bool:
    """Whether a text has the form MODULE:CALLABLE."""
    return _NAMED.fullmatch(text) is not None


def load_named(text: str) -> object:
    """What MODULE:CALLABLE names; modules in the current folder are found, after the installed ones."""
    match = _NAMED.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not MODULE:CALLABLE")
    module, attributes = match.groups()
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found: object = importlib.import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except Exception as error:
        raise UsageError(
            f"{text} cannot be imported",
            why=f"{type(error).__name__}: {error}",
            next=f"try: python -c 'from {module} import {attributes.split('.')[0]}'",
        ) from error
    return found


def describe(source: object) -> str:
    """What to call a Python object in messages."""
    if isinstance(source, Sequence):
        return f"the {type(source).__name__} of samples"
    name = getattr(source, "__qualname__", None) or type(source).__qualname__
    return f"{getattr(source, '__module__', None) or type(source).__module__}:{name}"
