"""Giving every input a fixed shape: the NPU compiles for one size only.

Sizes come from ``--dim NAME=N`` and ``--input-shape INPUT=1,3,224,224``, or from the user's samples where
these have one size. Nothing is guessed: what is missing is named, with the command to type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hexport.errors import HexportError, UsageError
from hexport.model.graph import Dim, Graph, TensorType

Shape = tuple[int, ...]


class DimsNeeded(HexportError, ValueError):
    """The model has dynamic dims that were given no size."""

    code = "HX405"


class DimsConflict(HexportError, ValueError):
    """Sizes were given that the model does not have, or that contradict it."""

    code = "HX406"


def fix_shapes(
    graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Shape], command: str
) -> dict[str, Shape]:
    """Every input's shape in numbers. ``command`` begins the suggestion when sizes are missing."""
    _check_names(graph, dims, input_shapes)
    shapes = _as_given(graph, dims, input_shapes)
    if not all(_done(shape) for shape in shapes.values()):
        raise _needed(graph, shapes, command)
    return {
        name: tuple(dim for dim in shape if isinstance(dim, int))
        for name, shape in shapes.items()
        if shape is not None
    }


def are_missing(graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Shape]) -> bool:
    """Whether an input has a dim that nobody gave a size."""
    return not all(_done(shape) for shape in _as_given(graph, dims, input_shapes).values())


def sizes_from(
    graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Shape], seen: Mapping[str, Shape]
) -> tuple[dict[str, int], dict[str, Shape], list[str]]:
    """``dims`` and ``input_shapes`` with what is missing as the samples have it, and what to say of it.

    Samples fit no other size, so there is nothing to choose. ``seen``: their shapes, by input; they have the
    rank that the model declares.
    """
    found, shapes = dict(dims), dict(input_shapes)
    as_given = _as_given(graph, dims, input_shapes)
    met: dict[str, set[int]] = {}
    for name, sizes in seen.items():
        for dim, size in zip(as_given[name] or (), sizes, strict=False):
            if isinstance(dim, str) and not is_anonymous(dim):
                met.setdefault(dim, set()).add(size)
    # A name that stands for two sizes is no name of a size: then whole shapes are given.
    found |= {dim: min(sizes) for dim, sizes in met.items() if len(sizes) == 1}
    for name, sizes in seen.items():
        declared = as_given[name]
        if declared is None:
            shapes[name] = sizes
        elif not all(isinstance(dim, int) or dim in found for dim in declared):
            pairs = zip(declared, sizes, strict=True)
            shapes[name] = tuple(dim if isinstance(dim, int) else size for dim, size in pairs)
    new = [f"{dim}={size}" for dim, size in found.items() if dim not in dims]
    new += [
        f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items() if name not in input_shapes
    ]
    notes = [f"no sizes were given; those of the samples are used: {', '.join(new)}"] if new else []
    return found, shapes, notes


def is_anonymous(dim: Dim) -> bool:
    """No name, or one that names nothing: exporters write ``?`` for every unknown dim alike."""
    return dim is None or (isinstance(dim, str) and not re.search(r"\w", dim))


def _as_given(
    graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Shape]
) -> dict[str, tuple[Dim, ...] | None]:
    return {
        name: _fix_one(name, tensor, dims, input_shapes.get(name)) for name, tensor in graph.inputs.items()
    }


def _check_names(graph: Graph, dims: Mapping[str, int], input_shapes: Mapping[str, Shape]) -> None:
    known = {
        d for t in graph.inputs.values() for d in t.shape or () if isinstance(d, str) and not is_anonymous(d)
    }
    for name, size in dims.items():
        if size < 1:
            raise UsageError(f"--dim {name}={size}: a size is 1 or more")
        if name not in known:
            raise DimsConflict(
                f"the model has no dim called {name!r}",
                why=f"its named dims are: {', '.join(sorted(known)) or 'none'}",
                next=_nearest(name, known, "--dim") or "use --input-shape INPUT=… for dims without a name",
            )
    for name, shape in input_shapes.items():
        if any(size < 1 for size in shape):
            raise UsageError(f"--input-shape {name}={','.join(map(str, shape))}: sizes are 1 or more")
        if name not in graph.inputs:
            raise DimsConflict(
                f"the model has no input called {name!r}",
                why=f"its inputs are: {', '.join(graph.inputs) or 'none'}",
                next=_nearest(name, set(graph.inputs), "--input-shape"),
            )


def _nearest(name: str, known: set[str], option: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean {option} {near[0]}=…?" if near else ""


def _fix_one(
    name: str, tensor: TensorType, dims: Mapping[str, int], given: Shape | None
) -> tuple[Dim, ...] | None:
    if given is None:
        if tensor.shape is None:
            return None
        return tuple(
            dims.get(d, d) if isinstance(d, str) and not is_anonymous(d) else d for d in tensor.shape
        )
    if tensor.shape is not None:
        _check_given(name, tensor.shape, dims, given)
    return given


def _check_given(name: str, declared: tuple[Dim, ...], dims: Mapping[str, int], given: Shape) -> None:
    if len(given) != len(declared):
        raise DimsConflict(
            f"input {name!r} has {len(declared)} dims, --input-shape gives {len(given)}",
            why=f"the model declares {TensorType('', declared)}",
            next=f"give {len(declared)} numbers",
        )
    for axis, (want, size) in enumerate(zip(declared, given, strict=True)):
        fixed = dims.get(want) if isinstance(want, str) else want
        if fixed is not None and fixed != size:
            source = f"--dim {want}={fixed}" if isinstance(want, str) else f"the model fixes it to {fixed}"
            raise DimsConflict(
                f"input {name!r}, axis {axis}: --input-shape says {size}",
                why=f"but {source}",
                next=f"use {fixed} there, or export the model with a dynamic axis",
            )


def _needed(graph: Graph, shapes: Mapping[str, tuple[Dim, ...] | None], command: str) -> DimsNeeded:
    options: list[str] = []
    named: dict[str, str] = {}
    for name, shape in shapes.items():
        if shape is None:
            options.append(f"--input-shape '{name}=<sizes>'")
        elif any(is_anonymous(d) for d in shape):
            sizes = ",".join(_example(d, axis) for axis, d in enumerate(shape))
            options.append(f"--input-shape '{name}={sizes}'")
        else:
            for axis, dim in enumerate(shape):
                if isinstance(dim, str):
                    # A name stands once, however many inputs have it, and on whatever axis.
                    named.setdefault(dim, f"--dim '{dim}={_example(dim, axis)}'")
    described = ", ".join(
        f"{name}: {tensor}" for name, tensor in graph.inputs.items() if not _done(shapes[name])
    )
    return DimsNeeded(
        f"the model has dynamic dims, and the NPU compiles for fixed sizes: {described}",
        why="onnxruntime-qnn would silently run the parts with dynamic dims on the CPU",
        next=f"choose the sizes you will ship: {' '.join([command, *named.values(), *options])}",
    )


def _done(shape: tuple[Dim, ...] | None) -> bool:
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def _example(dim: Dim, axis: int) -> str:
    if isinstance(dim, int):
        return str(dim)
    return "1" if axis == 0 else f"<size{axis}>"
