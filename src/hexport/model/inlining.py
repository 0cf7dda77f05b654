"""Model-local functions written out where they are called, so that every room sees plain nodes.

ONNX Runtime does the same when it loads a model, but under names of its own, which lead back to nothing
in the user's file. A function named like an operator of ONNX or ONNX Runtime stays a call: the standard
leaves to the runtime which of the two is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hexport.model.file import NotOnnx, bodies
from hexport.model.soundness import KNOWN_DOMAINS

_MOST_NODES = 1_000_000
"""Functions that call each other twice grow without bound; no real model comes near this."""

Key = tuple[bytes, bytes, bytes]


def inline(proto: Any) -> None:
    """Change a ModelProto in place; raises :class:`NotOnnx` where a function calls itself."""
    functions = {
        _key(function, function.name): function
        for function in proto.functions
        if function.domain.decode(errors="replace") not in KNOWN_DOMAINS and _same_opsets(function, proto)
    }
    if not functions:
        return
    names = {bytes(name) for node in _all_nodes(proto.graph.node) for name in (*node.input, *node.output)}
    _Inliner(functions, {beginning for name in names for beginning in _beginnings(name)}).write_out(
        proto.graph
    )
    kept = [function for function in proto.functions if _key(function, function.name) not in functions]
    del proto.functions[:]
    proto.functions.extend(kept)


def _key(owner: Any, name: bytes) -> Key:
    return bytes(owner.domain), bytes(name), bytes(owner.overload)


def _same_opsets(function: Any, proto: Any) -> bool:
    """Whether its nodes mean in the graph what they mean in the function; what is not imported is added."""
    versions = {bytes(entry.domain): entry.version for entry in proto.opset_import}
    missing = [entry for entry in function.opset_import if bytes(entry.domain) not in versions]
    if any(versions.get(bytes(e.domain), e.version) != e.version for e in function.opset_import):
        return False
    proto.opset_import.extend(missing)
    return True


@dataclass
class _Inliner:
    functions: dict[Key, Any]
    taken: set[bytes]
    """What tensors' names begin with, each up to a slash."""
    open_calls: list[Key] = field(default_factory=list)
    count: int = 0

    def write_out(self, graph: Any) -> None:
        """Replace the calls in a graph, in its bodies, and in what replaces them."""
        self._replace(graph.node)

    def _replace(self, nodes: Any) -> None:
        result: list[Any] = []
        for node in nodes:
            self.count += 1
            if self.count > _MOST_NODES:
                raise NotOnnx(
                    "the model's functions never come to an end",
                    why=f"written out they have more than {_MOST_NODES} nodes",
                    next="export the model without functions",
                )
            result += self._written_out(node)
        # The nodes are copies or belong to this very list, so they are kept before it is emptied.
        copies = [_copy(node) for node in result]
        del nodes[:]
        nodes.extend(copies)

    def _written_out(self, node: Any) -> list[Any]:
        key = _key(node, node.op_type)
        if key not in self.functions:
            for attribute in node.attribute:
                for body in bodies(attribute):
                    self.write_out(body)
            return [node]
        if key in self.open_calls:
            name = b"::".join(key[:2]).decode(errors="replace")
            raise NotOnnx(
                f"the function {name} calls itself",
                why="ONNX functions are written out where they are called, which would never end",
                next="export the model without this function",
            )
        function = _copy(self.functions[key])
        _Call(function, node, self._prefix(node)).bind()
        self.open_calls.append(key)
        self._replace(function.node)
        self.open_calls.pop()
        return list(function.node)

    def _prefix(self, node: Any) -> bytes:
        """What the function's own names begin with; no other tensor's name does."""
        start = prefix = bytes(node.name or node.op_type) + b"/"
        count = 0
        while prefix in self.taken:
            count += 1
            prefix = start[:-1] + b"#%d/" % count
        self.taken.update(_beginnings(prefix))
        return prefix


@dataclass(frozen=True)
class _Call:
    """A copy of a function that takes the names and attributes of one call."""

    function: Any
    node: Any
    prefix: bytes

    def bind(self) -> None:
        given = dict(zip(self.function.input, [*self.node.input], strict=False))
        # An optional input that the call leaves out is empty inside, too.
        names = {name: given.get(name, b"") for name in self.function.input}
        results = zip(self.function.output, self.node.output, strict=False)
        names |= {inner: outer for inner, outer in results if outer}
        attributes = {bytes(a.name): a for a in self.function.attribute_proto}
        attributes |= {bytes(a.name): a for a in self.node.attribute}
        self._rename(self.function.node, names, attributes)

    def _rename(self, nodes: Any, names: dict[bytes, bytes], attributes: dict[bytes, Any]) -> None:
        for node in nodes:
            node.name = self.prefix + bytes(node.name or node.op_type)
            node.input[:] = [self._name(name, names) for name in node.input]
            node.output[:] = [self._name(name, names) for name in node.output]
            bound = [self._attribute(a, attributes) for a in node.attribute]
            copies = [_copy(a) for a in bound if a is not None]
            del node.attribute[:]
            node.attribute.extend(copies)
            for attribute in node.attribute:
                for body in bodies(attribute):
                    for value in (*body.initializer, *body.input, *body.output, *body.value_info):
                        value.name = self._name(value.name, names)
                    for sparse in body.sparse_initializer:
                        sparse.values.name = self._name(sparse.values.name, names)
                    self._rename(body.node, names, attributes)

    def _name(self, name: bytes, names: dict[bytes, bytes]) -> bytes:
        return names.get(name, self.prefix + name) if name else name

    def _attribute(self, attribute: Any, given: dict[bytes, Any]) -> Any | None:
        """The attribute; for one that refers to the call, what the call gives, or None when it does not."""
        if not attribute.ref_attr_name:
            return attribute
        if attribute.ref_attr_name not in given:
            return None
        found = _copy(given[attribute.ref_attr_name])
        found.name = attribute.name
        return found


def _beginnings(name: bytes) -> Iterator[bytes]:
    """``a/b/c`` begins with ``a/`` and ``a/b/``."""
    return (name[: at + 1] for at, letter in enumerate(name) if letter == ord("/"))


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _all_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from _all_nodes(body.node)
