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
from hexport.quantization.activations import GivenRange
from hexport.quantization.encoding import QType
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, Precision, refusal
from hexport.quantization.recipe import Recipe, recipe_named
from hexport.quantization.roles import kind_of, weight_of

_FORM = '{"nodes": {"NODE, OP, TENSOR or REGEX": "16a8w"}, "tensors": {"NAME": {"low": -1.0, "high": 1.0}}}'

_LARGEST = 3.4e38
_KEYS = {"schema_version", "recipe", "partial", "cures", "nodes", "tensors"}


@dataclass(frozen=True)
class Wishes:
    """Node, operator, tensor or pattern -> scheme; tensor -> range."""

    nodes: Mapping[str, str]
    tensors: Mapping[str, GivenRange]
    recipe: Recipe | None = None
    """The one that a quant.json was made with; None when it is to be found."""
    partial: bool = False
    """Made for the same model at other sizes: names that this one lacks are passed over."""
    cures: tuple[str, ...] = ()
    """The rules that a quant.json's model was prepared with, without which it may lack the nodes named."""

    def apply(self, model: ir.Model, plan: Plan, arch: int) -> None:
        """Put them into the plan; a wish that fits no node is an error, and not a word in the wind."""
        if not self.partial:
            self._refuse_unknown_tensors(model)
        nodes = list(model.graph)
        for wish, scheme in self.nodes.items():
            fitting = _fitting(wish, nodes)
            if not fitting and self.partial:
                continue
            if not fitting:
                raise UsageError(
                    f"no node fits {wish.removeprefix('=')!r}",
                    why="it is neither a node's name, nor an operator of the model, nor a tensor's name, "
                    "nor a pattern of nodes' names",
                    next="see the names in quant.json, or leave it out",
                )
            # A pattern may take in nodes that have no such form; one of them at least must have it.
            able = [node for node in fitting if not _refusal(node, scheme, arch)]
            if not able and self.partial:
                continue
            if not able:
                node = fitting[0]
                raise UsageError(
                    f"{node.op_type} `{node.name}` cannot be {scheme}",
                    why=_refusal(node, scheme, arch),
                    next="leave it out, or say fp16",
                )
            for node in able:
                plan.keep(str(node.name), _precision(node, scheme), f"asked for by {wish!r}")

    def _refuse_unknown_tensors(self, model: ir.Model) -> None:
        known = {str(value.name) for value in model.graph.inputs}
        known |= {str(value.name) for node in model.graph for value in node.outputs}
        if missing := sorted(set(self.tensors) - known):
            raise UsageError(
                f"the model has no tensor {missing[0]!r}",
                why="its range was given in the override",
                next="see the names in quant.json, or leave it out",
            )


def read_wishes(file: Path | None, keep_float: Sequence[str]) -> Wishes:
    """From a file (a quant.json serves) and from the command line."""
    floats = dict.fromkeys(keep_float, "fp16")
    if file is None:
        return Wishes(floats, {})
    document = _document(file)
    nodes = {
        f"={name}" if isinstance(scheme, dict) else name: _scheme(file, name, scheme)
        for name, scheme in document.get("nodes", {}).items()
    }
    return Wishes(
        {**nodes, **floats},
        {name: _range(file, name, ends) for name, ends in document.get("tensors", {}).items()},
        _recipe(file, document.get("recipe")),
        bool(document.get("partial")),
        _cures(file, document.get("cures", [])),
    )


def _fitting(wish: str, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """By name, else by operator, tensor or pattern: a name need not be a pattern."""
    if wish.startswith("="):
        return [node for node in nodes if node.name == wish[1:]]
    if named := [node for node in nodes if wish in (node.name, node.op_type)] or _around(wish, nodes):
        return named
    try:
        pattern = re.compile(wish)
    except re.error as error:
        raise UsageError(f"{wish!r} is neither a name nor a pattern", why=str(error)) from error
    return [node for node in nodes if pattern.fullmatch(str(node.name))]


def _around(tensor: str, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """The node that makes it; of an input or a weight, those that read it."""
    makers = [node for node in nodes if any(value.name == tensor for value in node.outputs)]
    return makers or [node for node in nodes if any(v is not None and v.name == tensor for v in node.inputs)]


def _refusal(node: ir.Node, scheme: str, arch: int) -> str:
    if SCHEMES[scheme].activation is None:
        return ""
    if kind_of(node) is None:
        return "the NPU has no integer form of it"
    return refusal(node, _precision(node, scheme), arch)


def _precision(node: ir.Node, scheme: str) -> Precision:
    wanted = SCHEMES[scheme]
    if wanted.activation is None:
        return FLOAT
    return wanted if weight_of(node) is not None else Precision(wanted.activation)


def _recipe(file: Path, text: object) -> Recipe | None:
    if text is None:
        return None
    try:
        return recipe_named(str(text))
    except UsageError as error:
        raise UsageError(f"{file}: {error.what}", why=error.why, next=error.next) from error


def _cures(file: Path, names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{file}: its cures are no list of names",
            next="leave them out, or give them as quant.json has them",
        )
    return tuple(names)


def _document(file: Path) -> Mapping[str, Mapping[str, object]]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read", why=str(error), next=f"its form is {_FORM}") from error
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key, {}), dict) for key in ("nodes", "tensors")
    ):
        raise UsageError(f"{file} is not an override", next=f"its form is {_FORM}")
    if unknown := sorted(set(document) - _KEYS):
        raise UsageError(f"{file} has an unknown part {unknown[0]!r}", next=f"its form is {_FORM}")
    return document


def _scheme(file: Path, name: str, value: object) -> str:
    scheme = value.get("scheme") if isinstance(value, dict) else value
    known = {str(precision): key for key, precision in SCHEMES.items()}
    found = known.get(str(scheme)) or _activation_only(str(scheme))
    if found is None:
        raise UsageError(f"{file}: {name!r} has no scheme {scheme!r}", why=f"there are {', '.join(SCHEMES)}")
    return found


def _activation_only(scheme: str) -> str | None:
    """A quant.json says ``8a`` of a node without weights."""
    return {"8a": "8a8w", "16a": "16a8w"}.get(scheme)


def _range(file: Path, name: str, value: object) -> GivenRange:
    try:
        found: Any = value["low"], value["high"]  # type: ignore[index]
        ends = float(found[0]), float(found[1])
        type_ = QType[value["type"].upper()] if "type" in value else None  # type: ignore[index, operator]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{file}: {name!r} has no range", next=f"its form is {_FORM}") from error
    if not all(abs(end) < _LARGEST for end in ends):
        raise UsageError(
            f"{file}: the range of {name!r} is not of float32 numbers", why=f"{ends[0]}, {ends[1]}"
        )
    if not ends[0] < ends[1]:
        raise UsageError(f"{file}: the range of {name!r} is empty", why=f"{ends[0]} is not below {ends[1]}")
    return (*ends, type_)
