"""A model by itself: plain ONNX, which a QNN backend compiles, or an EPContext model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hexport import facts, zoo
from hexport.backend.where import GPU, QNN_CPU, Where, accept, choose_where, on_chip
from hexport.errors import UsageError
from hexport.inspection.context_model import inspect_context_model
from hexport.model import Graph, Model, TensorType, read
from hexport.model.dims import Shape, fix_shapes
from hexport.model.labels import COMPILED_OP
from hexport.model.staging import stage
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Limits
from hexport.verification.failures import NotVerifiable
from hexport.verification.inputs import Inputs, refuse_misfits
from hexport.verification.subject import CPU, Ran, describe, is_quantised, refuse_target, run_model
from hexport.zoo.models import PREFIX


@dataclass(frozen=True)
class ModelSubject:
    """A model and where it runs; None: on the CPU."""

    given: str
    source: Model
    where: Where | None
    compiled: bool
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, Shape] = field(default_factory=dict)

    frozen: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    asked_db: float | None = None

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        return self.source.graph.inputs

    @property
    def made_from(self) -> str:
        return self.given

    @property
    def own_reference(self) -> Path | None:
        """Itself on the CPU, in float or as ONNX Runtime computes it."""
        return None if self.compiled or self.where is None else self.source.path

    def takes(self, shapes: Mapping[str, Shape]) -> bool:
        return set(self.inputs) <= set(shapes)

    def sizes(self, wanted: Graph) -> dict[str, Shape]:
        given = self.input_shapes
        if not given and not self.dims and self.given.startswith(PREFIX):
            given = zoo.entry(self.given.removeprefix(PREFIX)).input_shapes
        return fix_shapes(wanted, self.dims, given, f"hexport verify '{self.given}'")

    def run(self, inputs: Inputs, limits: Limits) -> Ran:
        samples = [{name: sample[name] for name in self.inputs} for sample in inputs.samples]
        refuse_misfits(self.given, self.inputs, samples[0])
        where, optimize = self.where, not is_quantised(self.source)
        with temporary_folder() as folder:
            path, data_folder = self.source.path, ""
            if where is not None and not self.compiled:
                shapes = {name: array.shape for name, array in samples[0].items()}
                staged = stage(self.source, shapes, folder)
                path, data_folder = staged.model, staged.data_folder_if_needed
            results = run_model(path, samples, where, limits, optimize=optimize, data_folder=data_folder)
        if where is None:
            npu, cpu, notes = describe(results, self.given, False)
            return Ran(results.outputs, str(self.source.path), npu, cpu, notes=tuple(notes))
        npu, cpu, notes = describe(results, self.given, True, where.backend.title)
        cautions = accept(where, self.source.graph, self.given)
        chip = where.soc.chip if where.soc else None
        return Ran(results.outputs, str(self.source.path), npu, cpu, chip, notes=(*notes, *cautions))


def open_model(
    thing: str | Path,
    backend: str,
    target: str | int | None,
    dims: Mapping[str, int],
    input_shapes: Mapping[str, Shape],
    limits: Limits,
) -> ModelSubject:
    """The model, if it can be run there."""
    source = read(zoo.resolve(thing))
    compiled = is_compiled(source)
    if compiled and backend in (CPU, QNN_CPU, GPU):
        raise NotVerifiable(
            f"{thing} does not run on {'the CPU' if backend == CPU else backend}",
            why="it calls a context binary, which holds code for the NPU only",
            next="--backend simulator",
        )
    if backend == CPU:
        refuse_target(target)
        return ModelSubject(str(thing), source, None, False, dims, input_shapes)
    if backend in (QNN_CPU, GPU):
        where = choose_where(backend, target)
        accept(where, source.graph, str(thing))  # what it refuses is said before the work
        return ModelSubject(str(thing), source, where, False, dims, input_shapes)
    soc = None if target is None else facts.find_target(target)
    if compiled:
        soc = _chip_of(source.path, soc, limits)
    if soc is None:
        raise UsageError(
            f"for which chip shall {thing} be verified?",
            why="the simulator computes as one chip does",
            next=f"hexport verify '{thing}' --target SM8650, or --backend cpu",
        )
    return ModelSubject(str(thing), source, on_chip(soc), compiled, dims, input_shapes)


def is_compiled(source: Model) -> bool:
    return any(node.op == COMPILED_OP for node in source.graph.walk())


def _chip_of(path: Path, asked: facts.Soc | None, limits: Limits) -> facts.Soc:
    """The one that the binary was made for: the simulator would load it for any."""
    found = inspect_context_model(path, limits)
    if found.binary is None:
        raise NotVerifiable(f"{path} cannot be run", why=found.missing, next="put its binary beside it")
    if len(found.binary.contexts) > 1:
        chips = ", ".join(context.chip for context in found.binary.contexts)
        raise NotVerifiable(
            f"{path} cannot be run on the simulator",
            why=f"its binary serves several chips ({chips}), and the simulator loads no such",
            next="verify the model that it was compiled from, with --target",
        )
    (context,) = found.binary.contexts
    if context.soc_model is None:
        if asked is None:
            raise UsageError(f"{path} does not say for which chip it is", next="give --target")
        return asked
    soc = facts.find_target(context.soc_model)
    if asked is not None and asked != soc:
        raise UsageError(
            f"{path} is for {soc.chip}, and --target says {asked.chip}",
            why="the simulator would run it all the same, and prove nothing",
            next=f"leave --target out, or compile for {asked.chip}",
        )
    return soc
