"""Names that lead back to the module: ``layers.0.attn/MatMul`` is a MatMul of the module ``layers.0.attn``.

Every report of hexport names nodes, and every pattern of ``--keep-float`` is matched with them; what prepare
and quantize put in the place of a node begins with its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hexport.torch.user_code import module_of

if TYPE_CHECKING:
    import onnx_ir as ir

_SCOPES = "pkg.torch.onnx.name_scopes"
_NOT_A_MODULE = "_empty_nn_module_stack"
_SEPARATOR = "/"


def name_layers(model: ir.Model) -> None:
    """Rename every node and what it gives; the names of inputs, outputs and weights stay."""
    nodes, values = _Names(), _Names(str(value.name) for value in _lasting(model))
    fixed = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.graph.all_nodes():
        node.name = nodes.take(f"{_module(node)}{_SEPARATOR}{node.op_type}")
        for index, output in enumerate(node.outputs):
            if id(output) not in fixed and output.name:
                output.name = values.take(f"{node.name}_output_{index}")


def name_strays(model: ir.Model) -> None:
    """Nodes that a library put in the place of others are named after the value they give or take."""
    nodes = _Names(str(node.name) for node in model.graph.all_nodes())
    for node in model.graph.all_nodes():
        if _SEPARATOR not in str(node.name):
            near = [str(value.name) for value in (*node.outputs, *node.inputs) if value is not None]
            paths = [name.rpartition(_SEPARATOR)[0] for name in near if _SEPARATOR in name]
            node.name = nodes.take(f"{paths[0] if paths else ''}{_SEPARATOR}{node.op_type}")


def forget_scopes(model: ir.Model) -> None:
    """Remove torch's notes, which hold paths of the machine and are larger than many a graph."""
    for graph in model.graphs():
        graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def _lasting(model: ir.Model) -> Iterator[ir.Value]:
    yield from (*model.graph.inputs, *model.graph.outputs)
    for graph in model.graphs():
        yield from graph.initializers.values()


def _module(node: ir.Node) -> str:
    """The path of the module that a node is from; empty for the model itself."""
    origin = node.meta.get("node")
    path = module_of(origin) if origin is not None else None
    if path is None:
        scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
        # The last one is the name of torch's own node.
        path = str(scopes[-2]) if len(scopes) > 1 else ""
    if path.startswith(_NOT_A_MODULE):
        path = ""
    return re.sub(r"@\d+", "", path) or _owner_of_weights(node)


def _owner_of_weights(node: ir.Node) -> str:
    """torch does not tell modules in the branches of a torch.cond; a weight is called after its module."""
    weights = (str(value.name) for value in node.inputs if value is not None and value.is_initializer())
    return next((name.rpartition(".")[0] for name in weights if "." in name), "")


class _Names:
    """Names that are given once; the next one of a kind has a number behind it."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> str:
        found = name
        while found in self._taken:
            self._counts[name] = self._counts.get(name, 0) + 1
            found = f"{name}_{self._counts[name]}"
        self._taken.add(found)
        return found
