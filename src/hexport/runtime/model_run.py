"""A plain ONNX model on samples, in a worker: on the CPU, or on the simulator of one chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts, zoo
from hexport.backend.calling import PROVIDER
from hexport.backend.running import Results, run_on_cpu, run_on_htp
from hexport.errors import UsageError
from hexport.model import Model, read
from hexport.model.labels import COMPILED_OP
from hexport.model.staging import stage
from hexport.packaging.manifest import Contract, Tensor
from hexport.runtime.choosing import AUTO, CPU, SIMULATOR
from hexport.runtime.requests import Reception
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def run_model(
    model: str | Path,
    samples: Sequence[Mapping[str, Array]],
    backend: str,
    target: str | int | None,
    limits: Limits | None = None,
) -> tuple[list[dict[str, Array]], str]:
    """The outputs of every sample, and a line that says what ran where."""
    source = read(zoo.resolve(model))
    reception = Reception(_contract(source))
    requests = [reception.take(sample).arrays for sample in samples]
    compiled = any(node.op == COMPILED_OP for node in source.graph.walk())
    if backend in (AUTO, CPU):
        if compiled:
            raise UsageError(
                f"{model} does not run on the CPU",
                why="it calls a context binary, which holds code for the NPU only",
                next="use backend 'simulator'",
            )
        _refuse_target(target)
        results = run_on_cpu(source.path, requests, limits=limits)
        return [dict(one) for one in results.outputs], f"{model} ran on the CPU"
    if backend != SIMULATOR:
        raise UsageError(
            f"{model} cannot run on the {backend}",
            why="a model must be compiled for that, and a package holds what was",
            next="hexport build",
        )
    if target is None:
        raise UsageError(
            f"for which chip shall {model} run?",
            why="the simulator computes as one chip does",
            next="give a target, for example SM8650",
        )
    soc = facts.find_target(target)
    outputs: list[dict[str, Array]] = []
    line = ""
    for group in _same_shapes(requests):
        results = _simulate(source, group, soc, limits, compiled)
        outputs += [dict(one) for one in results.outputs]
        line = _said(str(model), results, soc)
    return outputs, line


def _simulate(
    source: Model,
    requests: Sequence[Mapping[str, Array]],
    soc: facts.Soc,
    limits: Limits | None,
    compiled: bool,
) -> Results:
    if compiled:
        return run_on_htp(source.path, requests, soc, limits=limits)
    shapes = {name: array.shape for name, array in requests[0].items()}
    with temporary_folder() as folder:
        staged = stage(source, shapes, folder)
        data = staged.data_folder_if_needed
        return run_on_htp(staged.model, requests, soc, data_folder=data, limits=limits)


def _same_shapes(requests: Sequence[Mapping[str, Array]]) -> list[list[Mapping[str, Array]]]:
    """Neighbours of one shape together: the simulator compiles once for each group."""
    groups: list[list[Mapping[str, Array]]] = []
    last: object = None
    for request in requests:
        shapes = {name: array.shape for name, array in request.items()}
        if shapes != last:
            groups.append([])
            last = shapes
        groups[-1].append(request)
    return groups


def _contract(source: Model) -> Contract:
    """The model's own signature."""
    inputs = tuple(
        Tensor(name, tensor.dtype, tensor.shape, name in source.defaults)
        for name, tensor in source.graph.inputs.items()
    )
    outputs = tuple(Tensor(name, t.dtype, t.shape) for name, t in source.graph.outputs.items())
    return Contract(inputs, outputs)


def _said(model: str, results: Results, soc: facts.Soc) -> str:
    nodes = {True: 0, False: 0}
    for part in results.parts:
        nodes[part.provider == PROVIDER] += len(part.nodes)
    counts = f"{nodes[True]} nodes on the NPU, {nodes[False]} on the CPU"
    return f"{model} ran on the simulator of {soc.chip}: {counts}"


def _refuse_target(target: str | int | None) -> None:
    if target is not None:
        raise UsageError(f"target {target} has no meaning on the CPU", next="use backend 'simulator'")
