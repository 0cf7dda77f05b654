"""An ONNX file as bytes and protobuf: every way a file can be bad is found here and said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hexport.errors import HexportError
from hexport.model.onnx_proto import message_class

MAX_PROTOBUF = 2**31 - 1
_EXTERNAL = 1


class ModelError(HexportError):
    """The model file cannot be used."""

    code = "HX400"


class UnreadableModel(ModelError, OSError):
    """The file is not there, is a folder, or may not be read."""

    code = "HX401"


class NotOnnx(ModelError, ValueError):
    """The bytes are not an ONNX model."""

    code = "HX402"


class TooLarge(ModelError, ValueError):
    """Over protobuf's limit of 2 GB in one file."""

    code = "HX403"


class ExternalDataMissing(ModelError, FileNotFoundError):
    """Weights are kept in another file that is not there, is too short, or lies outside the folder."""

    code = "HX404"


def load(path: Path) -> Any:
    """The file's ModelProto, external data looked for; or a :class:`ModelError` that says what is wrong."""
    proto = _parse(path, _read_bytes(path))
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise NotOnnx(
            f"{path} holds no graph",
            why="it parses as protobuf, but has no nodes and no outputs",
            next="name the .onnx file itself, not its external data",
        )
    _check_external_data(path, proto)
    return proto


def bodies(attribute: Any) -> list[Any]:
    """The graphs an attribute holds: the branches of an If, the body of a Loop."""
    return ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def nodes(graph: Any) -> Iterator[Any]:
    """Every node, those in bodies after the node that holds them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from nodes(body)


def _read_bytes(path: Path) -> bytes:
    fix = "check the path"
    try:
        if path.is_dir():
            raise UnreadableModel(f"{path} is a folder", why="a model is one .onnx file", next=_suggest(path))
        size = path.stat().st_size
        if size > MAX_PROTOBUF:
            raise TooLarge(
                f"{path} is {size / 2**30:.1f} GB",
                why="an ONNX file is one protobuf message, and those end at 2 GB",
                next="save it with external data: onnx.save(model, path, save_as_external_data=True)",
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UnreadableModel(f"{path} does not exist", next=fix) from error
    except PermissionError as error:
        raise UnreadableModel(
            f"{path} may not be read", why=str(error), next=f"chmod u+r '{path}'"
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, HexportError):
            raise
        raise UnreadableModel(f"{path} cannot be read", why=str(error), next=fix) from error
    if not data:
        raise NotOnnx(f"{path} is empty", why="it has 0 bytes", next="export or download the model again")
    return data


def _suggest(folder: Path) -> str:
    try:
        models = sorted(folder.glob("*.onnx"))
    except OSError:
        models = []
    return f"name the file, for example {models[0]}" if models else "name the .onnx file itself"


def _parse(path: Path, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    proto = message_class("ModelProto")()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        if data.startswith(b"version https://git-lfs"):
            raise NotOnnx(
                f"{path} is a Git LFS pointer", why="the real file was not fetched", next="git lfs pull"
            ) from error
        raise NotOnnx(
            f"{path} is not an ONNX model",
            why=f"protobuf cannot parse it ({error}); it may be truncated, or another format",
            next="export or download the model again",
        ) from error
    return proto


def _tensors(graph: Any) -> Iterator[Any]:
    """Every stored tensor, those in attributes and bodies included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for body in bodies(attribute):
                yield from _tensors(body)


def is_external(tensor: Any) -> bool:
    """Whether its numbers are in another file."""
    return bool(tensor.data_location == _EXTERNAL)


def has_external_data(proto: Any) -> bool:
    """Whether any tensor is kept in another file."""
    return any(is_external(tensor) for tensor in stored_tensors(proto))


def stored_tensors(proto: Any) -> Iterator[Any]:
    """Every tensor with numbers in it, wherever it is in the model."""
    yield from _tensors(proto.graph)
    for function in proto.functions:
        yield from _node_tensors(function.node)


def _check_external_data(path: Path, proto: Any) -> None:
    folder = path.parent.resolve()
    sizes: dict[Path, int] = {}
    for tensor in stored_tensors(proto):
        if not is_external(tensor):
            continue
        entries = {bytes(e.key): bytes(e.value) for e in tensor.external_data}
        location = os.fsdecode(entries.get(b"location", b""))
        try:
            file = (folder / location).resolve()
            offset, length = int(entries.get(b"offset", b"0")), int(entries.get(b"length", b"0"))
        except ValueError as error:
            raise NotOnnx(
                f"{path}: external data of a tensor is not well described", why=str(error)
            ) from error
        # ONNX forbids leaving the folder; a hostile model could otherwise read any file.
        if not location or not file.is_relative_to(folder):
            raise ExternalDataMissing(
                f"{path} keeps weights in {location!r}",
                why="external data must lie in the model's own folder",
                next="move the data file beside the model and save the model again",
            )
        if file not in sizes:
            sizes[file] = file.stat().st_size if file.is_file() else -1
        if sizes[file] < offset + length or sizes[file] < 0:
            reason = (
                "it is not there"
                if sizes[file] < 0
                else f"it has {sizes[file]} bytes, {offset + length} are needed"
            )
            raise ExternalDataMissing(
                f"{path} keeps weights in {location}, which cannot be used",
                why=reason,
                next=f"put the complete {location} into {path.parent}",
            )
