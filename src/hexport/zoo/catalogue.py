"""What is in the zoo: ``wheels.toml``, ``models.toml`` and ``assets.toml``, read strictly.

A key too many, one too few or a value of the wrong form is a mistake in hexport itself, so these
raise plain ``ValueError``s that name the file and the key.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from hexport.zoo.errors import UnknownZooModel

Dim = int | str


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned wheel."""

    package: str
    version: str
    file: str
    sha256: str
    licence: str


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a wheel, and the name it gets in the cache."""

    wheel: Wheel
    path: str
    sha256: str
    file: str


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a model: ``dims`` as its ONNX file has them, ``shape`` as the zoo uses them."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    shape: tuple[int, ...]
    always: int | None = None
    """The one value it has in this use of the model, such as a sample rate."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the zoo."""

    name: str
    about: str
    source: Member
    """The ONNX file, or the checkpoint it is exported from."""
    exported: bool
    model_licence: str | None
    kind: str
    """What its inputs are made of."""
    inputs: tuple[Input, ...]

    @property
    def licence(self) -> str:
        """The terms of the model; those of the package where it has none of its own."""
        return self.model_licence or self.source.wheel.licence

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input, which fixes every dim whether it has a name or not."""
        return {i.name: i.shape for i in self.inputs}

    @property
    def frozen(self) -> dict[str, str]:
        """Inputs that always have one value, as ``--freeze`` takes them."""
        return {i.name: str(i.always) for i in self.inputs if i.always is not None}

    @property
    def dims(self) -> dict[str, int]:
        """The same for the symbolic dims by name, where the name is there and means one size."""
        sizes: dict[str, set[int]] = {}
        for i in self.inputs:
            for dim, size in zip(i.dims, i.shape, strict=True):
                if isinstance(dim, str) and dim:
                    sizes.setdefault(dim, set()).add(size)
        return {name: size.pop() for name, size in sizes.items() if len(size) == 1}


def names() -> list[str]:
    """The models, in the order of the catalogue."""
    return list(_models())


def entry(name: str) -> Entry:
    """The model ``name``."""
    try:
        return _models()[name]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
        raise UnknownZooModel(
            f"the zoo has no model {name!r}",
            why=f"nearest: {', '.join(near)}" if near else "",
            next="`hexport zoo list` shows all of them",
        ) from None


def assets(group: str) -> tuple[Member, ...]:
    """The files that inputs are made from, by group."""
    return _assets()[group]


def members_of(wheel: Wheel) -> tuple[Member, ...]:
    """Every catalogued file in a wheel, so that one download serves them all."""
    every = [e.source for e in _models().values()] + [m for group in _assets().values() for m in group]
    return tuple(dict.fromkeys(m for m in every if m.wheel == wheel))


@cache
def _wheels() -> dict[str, Wheel]:
    wheels = {}
    for package, fields in _read("wheels.toml"):
        version, file, licence = (fields.text(k) for k in ("version", "file", "licence"))
        wheels[package] = Wheel(package, version, _plain(file), fields.sha256(), licence)
        fields.end()
    return wheels


@cache
def _models() -> dict[str, Entry]:
    models = {}
    for name, fields in _read("models.toml"):
        export = fields.text("export", default="")
        if export not in ("", "torch"):
            raise ValueError(f"{fields.where}: export = {export!r}")
        wheel, path = fields.wheel(), fields.member()
        file = name + (PurePosixPath(path).suffix if export else ".onnx")
        models[name] = Entry(
            name=name,
            about=fields.text("about"),
            source=Member(wheel, path, fields.sha256(), _plain(file)),
            exported=bool(export),
            model_licence=fields.text("model_licence", default="") or None,
            kind=fields.text("kind"),
            inputs=tuple(_input(_Fields(f"{fields.where}.inputs", i)) for i in fields.take("inputs", list)),
        )
        fields.end()
    return models


@cache
def _assets() -> dict[str, tuple[Member, ...]]:
    groups = {}
    for group, fields in _read("assets.toml"):
        members = []
        for file in list(fields.values):
            one = _Fields(f"{fields.where}.{file}", fields.take(file, dict))
            members.append(Member(one.wheel(), one.member(), one.sha256(), _plain(file)))
            one.end()
        groups[group] = tuple(members)
    return groups


def _input(fields: _Fields) -> Input:
    name, dtype = fields.text("name"), fields.text("dtype")
    dims, shape = tuple(fields.take("dims", list)), tuple(fields.take("shape", list))
    always = fields.take("always", int) if "always" in fields.values else None
    fields.end()
    fits = len(dims) == len(shape) and all(
        isinstance(size, int) and size > 0 and (isinstance(dim, str) or dim in (size, -1))
        for dim, size in zip(dims, shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{fields.where}: shape {shape} does not fit dims {dims}")
    return Input(name, dtype, dims, shape, always)


class _Fields:
    """A TOML table that is taken apart key by key; what is left over is an error."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where = where
        self.values = dict(values)

    def take(self, key: str, form: type) -> Any:
        if key not in self.values:
            raise ValueError(f"{self.where}: {key} is missing")
        value = self.values.pop(key)
        if not isinstance(value, form):
            raise ValueError(f"{self.where}: {key} must be a {form.__name__}")  # noqa: TRY004 - a bad file
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and key not in self.values:
            return default
        value: str = self.take(key, str)
        return value

    def sha256(self) -> str:
        value = self.text("sha256")
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise ValueError(f"{self.where}: sha256 is not one")
        return value

    def wheel(self) -> Wheel:
        package = self.text("wheel")
        if package not in _wheels():
            raise ValueError(f"{self.where}: wheels.toml has no {package}")
        return _wheels()[package]

    def member(self) -> str:
        return safe_member(self.text("member"))

    def end(self) -> None:
        if self.values:
            raise ValueError(f"{self.where}: unknown {', '.join(self.values)}")


def safe_member(path: str) -> str:
    """``path`` if it stays inside the folder it is unpacked into, on every platform."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or ":" in path:
        raise ValueError(f"not a path inside a wheel: {path!r}")
    return path


def _plain(file: str) -> str:
    if "/" in safe_member(file):
        raise ValueError(f"not a plain file name: {file!r}")
    return file


def _read(file: str) -> list[tuple[str, _Fields]]:
    document = tomllib.loads(files("hexport.zoo").joinpath(file).read_text(encoding="utf-8"))
    return [(name, _Fields(f"{file}: {name}", table)) for name, table in document.items()]
