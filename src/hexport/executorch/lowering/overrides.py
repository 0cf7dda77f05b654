"""What the user settles for parts of a program: another precision, or the CPU, for nodes, modules, operators.

As a file, TOML or JSON, whose first entry that fits a node counts::

    [[override]]
    module = "encoder.layer.0"   # it and all below; or node = "linear_1", or op = "aten.softmax"
    scheme = "16a16w"            # a scheme, "fp16": float on the NPU, or "cpu": float beside it

    [[override]]
    module = "head"
    scheme = "16a4w_block"
    block_size = 64
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.errors import UsageError
from hexport.executorch.lowering.options import BLOCK, SCHEMES

KINDS = ("node", "module", "op")
CPU = "cpu"
_ALLOWED = (*SCHEMES, CPU)
_FORM = '[[override]] with one of node, module, op = "…", and scheme = "…"'
_ARGUMENT = re.compile(r"(node|module|op):(.+)=([0-9a-z_]+)(?:/(\d+))?")


@dataclass(frozen=True)
class Override:
    """One entry: which nodes, and what becomes of them."""

    kind: str
    pattern: str
    """A name, or a regular expression that fits the whole of one."""
    scheme: str
    block_size: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"an override is of a {', '.join(KINDS)}, not of a {self.kind!r}")
        if self.scheme not in _ALLOWED:
            raise UsageError(
                f"the override of {self} asks for {self.scheme!r}", why=f"there are {', '.join(_ALLOWED)}"
            )
        if self.block_size is not None and (self.scheme != BLOCK or self.block_size < 1):
            raise UsageError(f"the override of {self} has a block size", why=f"only {BLOCK} has blocks")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageError(f"{self.pattern!r} is neither a name nor a pattern", why=str(error)) from error

    def __str__(self) -> str:
        return f"{self.kind} {self.pattern!r}"


def read_overrides(file: Path | None, arguments: Iterable[str] = ()) -> tuple[Override, ...]:
    """From ``KIND:PATTERN=SCHEME[/BLOCK]``, which count first, and from a file."""
    given = tuple(_argument(text) for text in arguments)
    return given if file is None else (*given, *_entries(file))


def _argument(text: str) -> Override:
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no override",
            why="its form is KIND:NAME=SCHEME",
            next="for example module:encoder.layer.0=fp16, op:aten.softmax=16a16w or node:linear_1=cpu",
        )
    return Override(match[1], match[2], match[3], int(match[4]) if match[4] else None)


def _entries(file: Path) -> tuple[Override, ...]:
    try:
        text = file.read_text("utf-8")
        document = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read", why=str(error), next=f"its form is {_FORM}") from error
    entries = document.get("override") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries or set(document) != {"override"}:
        raise UsageError(f"{file} holds no overrides", next=f"its form is {_FORM}")
    return tuple(_entry(file, number, entry) for number, entry in enumerate(entries))


def _entry(file: Path, number: int, entry: Any) -> Override:
    where = f"{file}, override {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is no table", next=f"its form is {_FORM}")
    if unknown := sorted(set(entry) - {*KINDS, "scheme", "block_size"}):
        raise UsageError(f"{where} has an unknown field {unknown[0]!r}", next=f"its form is {_FORM}")
    kinds = [kind for kind in KINDS if kind in entry]
    texts = [*kinds, "scheme"]
    if len(kinds) != 1 or not all(isinstance(entry.get(key), str) for key in texts):
        raise UsageError(f"{where} does not say what it is for", next=f"its form is {_FORM}")
    size = entry.get("block_size")
    if size is not None and type(size) is not int:
        raise UsageError(f"{where}: block_size is {size!r}, and no number")
    return Override(kinds[0], entry[kinds[0]], entry["scheme"], size)
