"""What the user wants of single nodes and tensors: ``--override FILE`` and ``--keep-float``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from hexport.errors import UsageError
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision
from hexport.quantization.roles import kind_of, weight_of

_FORM = '{"nodes": {"NAME, OP or REGEX": "16a8w"}, "tensors": {"NAME": {"low": -1.0, "high": 1.0}}}'


@dataclass(frozen=True)
class Wishes:
    """Node, operator or pattern -> scheme; tensor -> range."""

    nodes: Mapping[str, str]
    tensors: Mapping[str, tuple[float, float]]

    def apply(self, model: ir.Model, plan: Plan) -> None:
        """Put them into the plan; a wish that fits no node is an error, and not a word in the wind."""
        nodes = list(model.graph)
        for wish, scheme in self.nodes.items():
            fitting = [node for node in nodes if _fits(wish, node)]
            if not fitting:
                raise UsageError(
                    f"no node fits {wish!r}",
                    why="it is neither a node's name, nor an operator of the model, nor a pattern of names",
                    next="see the names in quant.json, or leave it out",
                )
            for node in fitting:
                plan.set(str(node.name), _precision(node, scheme), f"asked for by {wish!r}")


def read_wishes(file: Path | None, keep_float: Sequence[str]) -> Wishes:
    """From a file (a quant.json serves) and from the command line."""
    nodes: dict[str, str] = {}
    tensors: dict[str, tuple[float, float]] = {}
    if file is not None:
        document = _document(file)
        for name, scheme in document.get("nodes", {}).items():
            nodes[f"={name}" if isinstance(scheme, dict) else name] = _scheme(file, name, scheme)
        for name, ends in document.get("tensors", {}).items():
            tensors[name] = _range(file, name, ends)
    return Wishes({**nodes, **dict.fromkeys(keep_float, "fp16")}, tensors)


def _fits(wish: str, node: ir.Node) -> bool:
    name = str(node.name)
    if wish.startswith("="):
        return name == wish[1:]
    if wish in (name, node.op_type):
        return True
    try:
        return re.fullmatch(wish, name) is not None
    except re.error as error:
        raise UsageError(f"{wish!r} is not a pattern", why=str(error)) from error


def _precision(node: ir.Node, scheme: str) -> Precision:
    wanted = SCHEMES[scheme]
    if wanted.activation is None:
        return FLOAT
    if kind_of(node) is None:
        raise UsageError(
            f"{node.op_type} `{node.name}` cannot be {scheme}",
            why="the NPU has no integer form of it",
            next="leave it out, or say fp16",
        )
    return wanted if weight_of(node) is not None else Precision(wanted.activation)


def _document(file: Path) -> Mapping[str, Mapping[str, object]]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read", why=str(error), next=f"its form is {_FORM}") from error
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key, {}), dict) for key in ("nodes", "tensors")
    ):
        raise UsageError(f"{file} is not an override", next=f"its form is {_FORM}")
    return document


def _scheme(file: Path, name: str, value: object) -> str:
    scheme = value.get("scheme") if isinstance(value, dict) else value
    known = {str(precision): key for key, precision in SCHEMES.items()}
    found = scheme if scheme in SCHEMES else known.get(str(scheme)) or _activation_only(str(scheme))
    if found is None:
        raise UsageError(f"{file}: {name!r} has no scheme {scheme!r}", why=f"there are {', '.join(SCHEMES)}")
    return str(found)


def _activation_only(scheme: str) -> str | None:
    """A quant.json says ``8a`` of a node without weights."""
    return {"8a": "8a8w", "16a": "16a8w"}.get(scheme)


def _range(file: Path, name: str, value: object) -> tuple[float, float]:
    try:
        found: Any = (value["low"], value["high"]) if isinstance(value, dict) else value
        ends = float(found[0]), float(found[1])
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise UsageError(f"{file}: {name!r} has no range", next=f"its form is {_FORM}") from error
    if not ends[0] < ends[1]:
        raise UsageError(f"{file}: the range of {name!r} is empty", why=f"{ends[0]} is not below {ends[1]}")
    return ends
