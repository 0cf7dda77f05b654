"""Which operators an override is for; one that is for none is an error with the names that are near."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hexport.executorch.lowering.inside.operators import base_name, op_name
from hexport.executorch.lowering.inside.programs import module_path, module_paths
from hexport.executorch.lowering.inside.readying import origin
from hexport.executorch.lowering.overrides import Override
from hexport.toolchain.serving import JobError

_MOST = 6
"""Near names that are told."""


def settle(overrides: Sequence[Override], module: Any) -> dict[str, Override]:
    """Operator → its override, the first that fits it; by the names of the ready graph."""
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    chosen: dict[str, Override] = {}
    for override in overrides:
        fitting = [node for node in nodes if fits(override, node)]
        if not fitting:
            raise JobError("OverrideUnmatched", _nothing(override, nodes))
        for node in fitting:
            chosen.setdefault(node.name, override)
    return chosen


def fits(override: Override, node: Any) -> bool:
    """Whether ``node`` is one of those."""
    if override.kind == "module":
        return any(_is(override.pattern, path) for path in module_paths(node) if path)
    if override.kind == "op":
        full = op_name(node)
        return any(_is(override.pattern, name) for name in (full, full.rpartition(".")[0], base_name(node)))
    return _is(override.pattern, origin(node) or node.name)


def _is(pattern: str, name: str) -> bool:
    return pattern == name or re.fullmatch(pattern, name) is not None


def _nothing(override: Override, nodes: Iterable[Any]) -> str:
    known = sorted({_name(override.kind, node) for node in nodes} - {""})
    near = difflib.get_close_matches(override.pattern, known, n=_MOST, cutoff=0.4)
    near = near or [name for name in known if override.pattern in name][:_MOST]
    said = f"near are {', '.join(near)}" if near else f"there are {', '.join(known[: 2 * _MOST])}"
    more = ", …" if not near and len(known) > 2 * _MOST else ""
    return f"no operator of the program is in {override}; {said}{more}"


def _name(kind: str, node: Any) -> str:
    if kind == "module":
        return module_path(node)
    return op_name(node).rpartition(".")[0] if kind == "op" else str(node.name)
