"""A plain ONNX model on samples, in a worker: on the CPU, a chip's simulator, or another QNN backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport import facts, zoo
from hexport.backend.running import Results, run_on, run_on_cpu
from hexport.backend.where import QNN_CPU, Where, accept, choose_where, not_whole, on_chip
from hexport.errors import UsageError
from hexport.model import Model, read
from hexport.model.labels import COMPILED_OP
from hexport.model.staging import stage
from hexport.packaging.manifest import Contract, Tensor
from hexport.runtime.choosing import AUTO, BACKENDS, CPU, GPU, SIMULATOR
from hexport.runtime.requests import Reception
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


MODEL_BACKENDS = (*BACKENDS, QNN_CPU)
"""What a plain model can be asked to run on; ``npu`` is then refused, with the reason."""


def run_model(
    model: str | Path,
    samples: Sequence[Mapping[str, Array]],
    backend: str,
    target: str | int | None,
    limits: Limits | None = None,
    *,
    allow_cpu: bool = True,
) -> tuple[list[dict[str, Array]], tuple[str, ...]]:
    """The outputs of every sample, and lines that say what ran where.

    Without ``allow_cpu`` a model that is not wholly on the QNN backend is an error.
    """
    source = read(zoo.resolve(model))
    reception = Reception(_contract(source))
    requests = [reception.take(sample).arrays for sample in samples]
    compiled = any(node.op == COMPILED_OP for node in source.graph.walk())
    if compiled and backend != SIMULATOR:
        raise UsageError(
            f"{model} does not run on {'the CPU' if backend in (AUTO, CPU) else backend}",
            why="it calls a context binary, which holds code for the NPU only",
            next="use backend 'simulator'",
        )
    if backend in (AUTO, CPU):
        _refuse_target(target)
        if not allow_cpu:
            raise UsageError(f"--no-cpu: {model} is a model, and runs on the CPU", next="name a --backend")
        results = run_on_cpu(source.path, requests, limits=limits)
        return [dict(one) for one in results.outputs], (f"{model} ran on the CPU",)
    where = _where(model, backend, target)
    cautions = accept(where, source.graph, str(model))
    outputs: list[dict[str, Array]] = []
    line = ""
    for group in _same_shapes(requests):
        results = _run(source, group, where, limits, compiled)
        if not allow_cpu and not results.whole:
            raise not_whole(where, str(model))
        outputs += [dict(one) for one in results.outputs]
        line = _said(str(model), results, where)
    return outputs, (line, *cautions)


def _where(model: str | Path, backend: str, target: str | int | None) -> Where:
    if backend in (GPU, QNN_CPU):
        return choose_where(backend, target)
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
    return on_chip(facts.find_target(target))


def _run(
    source: Model,
    requests: Sequence[Mapping[str, Array]],
    where: Where,
    limits: Limits | None,
    compiled: bool,
) -> Results:
    if compiled:
        return run_on(source.path, requests, where, limits=limits)
    shapes = {name: array.shape for name, array in requests[0].items()}
    with temporary_folder() as folder:
        staged = stage(source, shapes, folder)
        data = staged.data_folder_if_needed
        return run_on(staged.model, requests, where, data_folder=data, limits=limits)


def _same_shapes(requests: Sequence[Mapping[str, Array]]) -> list[list[Mapping[str, Array]]]:
    """Neighbours of one shape together: a session is made for each group."""
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


def _said(model: str, results: Results, where: Where) -> str:
    title = f"the simulator of {where.soc.chip}" if where.soc else where.backend.title
    if not results.taken:
        return f"nothing of {model} ran on {title}: {where.rest} computed all of it"
    left = "some" if results.unlisted_rest and not results.left else results.left
    there = f"on {where.backend.title}" if where.soc else "there"
    return f"{model} ran on {title}: {results.taken} nodes {there}, {left} on {where.rest}"


def _refuse_target(target: str | int | None) -> None:
    if target is not None:
        raise UsageError(f"target {target} has no meaning on the CPU", next="use backend 'simulator'")
