"""A saved torch program: loading it without executing it, its inputs and outputs, other sizes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.requests import InputDims, MethodRequest
from hexport.executorch.pte.sidecar import TensorSpec
from hexport.toolchain.serving import JobError
from hexport.torch.program_reading import UNREADABLE, read_program

_SELF = re.compile(r"^L\['self'\]\.?|@\d+")
"""torch.export's own word for the model, and its count of calls of a module that is called more than once."""


@dataclass(frozen=True)
class Program:
    """A program at fixed sizes, with inputs to trace it on."""

    name: str
    exported: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def load(path: str) -> Any:
    """The program in a file; whatever in it would have to be executed is refused."""
    stack()  # torch comes from there, in the order that does not crash
    try:
        return read_program(Path(path).read_bytes(), quantised=True).program
    except (OSError, *UNREADABLE) as error:
        raise JobError("ProgramUnreadable", str(error)) from error


def declared_inputs(exported: Any) -> tuple[InputDims, ...]:
    """The tensors that the program takes, with the names of dims that may vary."""
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"}
    leaves = _example_leaves(exported)
    found = []
    for name, leaf in zip(exported.graph_signature.user_inputs, leaves, strict=True):
        if not isinstance(leaf, stack().torch.Tensor):
            raise JobError(
                "ProgramUnreadable", f"its input {name} is {leaf!r} and no tensor: fix it in the module"
            )
        dims = tuple(int(dim) if isinstance(dim, int) else str(dim) for dim in values[name].shape)
        found.append(InputDims(name, dtype_name(leaf), dims, tuple(leaf.shape)))
    return tuple(found)


def at_sizes(request: MethodRequest, exported: Any, first: list[Any] | None) -> Program:
    """The program with every size settled: those asked for, those of the first sample, or the example's."""
    torch = stack().torch
    pytree = importlib.import_module("torch.utils._pytree")
    declared = declared_inputs(exported)
    if unknown := sorted(set(request.shapes) - {one.name for one in declared}):
        known = ", ".join(one.name for one in declared)
        raise JobError("ShapesMisfit", f"there is no input {unknown[0]!r}; there are {known}")
    examples = first if first is not None else _example_leaves(exported)
    leaves = [
        _resized(example, request.shapes.get(one.name, tuple(example.shape)))
        for one, example in zip(declared, examples, strict=True)
    ]
    _, shape = pytree.tree_flatten(exported.example_inputs)
    args, kwargs = pytree.tree_unflatten(leaves, shape)
    same = all(one.dims == tuple(leaf.shape) for one, leaf in zip(declared, leaves, strict=True))
    if not same:
        try:
            exported = torch.export.export(exported.module(), tuple(args), dict(kwargs), strict=True)
        except Exception as error:
            raise JobError("ShapesMisfit", f"{type(error).__name__}: {error}") from error
    inputs = tuple(
        TensorSpec(one.name, one.dtype, tuple(leaf.shape)) for one, leaf in zip(declared, leaves, strict=True)
    )
    return Program(request.name, exported, tuple(args), dict(kwargs), inputs, described_outputs(exported))


def described_outputs(exported: Any) -> tuple[TensorSpec, ...]:
    """The tensors that the program gives, by their keys where it gives a dict."""
    pytree = importlib.import_module("torch.utils._pytree")
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    names = exported.graph_signature.user_outputs
    spec = exported.call_spec.out_spec
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(names), spec))
    found = []
    for number, ((path, _), name) in enumerate(zip(paths, names, strict=True)):
        value = values.get(name)
        if value is None:
            raise JobError("ProgramUnreadable", f"its output {name!r} is no tensor that it computes")
        found.append(TensorSpec(_output_name(path, number, len(names)), dtype_name(value), _sizes(value)))
    return tuple(found)


def _output_name(path: Any, number: int, count: int) -> str:
    keys = [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]
    said = ".".join(key for key in keys if key)
    return said or ("output" if count == 1 else f"output_{number}")


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)


def dtype_name(tensor: Any) -> str:
    """numpy's name of a tensor's type."""
    return str(tensor.dtype).removeprefix("torch.")


def sample(folder: str, number: int, count: int) -> list[Any]:
    """The tensors of one sample, in the order of the inputs."""
    import numpy as np

    torch = stack().torch
    with np.load(Path(folder) / f"{number}.npz", allow_pickle=False) as arrays:
        return [torch.from_numpy(arrays[f"arr_{i}"].copy()) for i in range(count)]


def samples(
    request: MethodRequest, program: Program, numbers: Iterable[int] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Arguments of the program, sample by sample; one is in memory at a time."""
    pytree = importlib.import_module("torch.utils._pytree")
    _, shape = pytree.tree_flatten((program.args, program.kwargs))
    for number in numbers if numbers is not None else range(request.count):
        args, kwargs = pytree.tree_unflatten(sample(request.samples, number, len(program.inputs)), shape)
        yield args, kwargs


def module_path(node: Any) -> str:
    """Where in the user's module an operator comes from; empty: the model itself, or not known."""
    found = node.meta.get("nn_module_stack")
    return _SELF.sub("", str(list(found.values())[-1][0])) if found else ""


def module_paths(node: Any) -> tuple[str, ...]:
    """The modules around an operator, the outermost first."""
    found = node.meta.get("nn_module_stack") or {}
    return tuple(_SELF.sub("", str(path)) for path, _ in found.values())


def _example_leaves(exported: Any) -> list[Any]:
    pytree = importlib.import_module("torch.utils._pytree")
    if exported.example_inputs is None:
        raise JobError("ProgramUnreadable", "it was saved without its example inputs")
    return list(pytree.tree_leaves(exported.example_inputs))


def _resized(example: Any, sizes: tuple[int, ...]) -> Any:
    """The example repeated and cut along each axis: values that the program is used to."""
    if tuple(example.shape) == tuple(sizes):
        return example
    if len(example.shape) != len(sizes) or 0 in example.shape:
        raise JobError("ShapesMisfit", f"{list(example.shape)} cannot become {list(sizes)}")
    times = [-(-want // have) for want, have in zip(sizes, example.shape, strict=True)]
    filled = example.repeat(*times) if times else example
    return filled[tuple(slice(0, size) for size in sizes)].contiguous()
