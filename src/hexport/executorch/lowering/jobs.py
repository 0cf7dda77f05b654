"""The jobs of a worker that lowers torch programs, in the interpreter that has executorch.

Runs in a child process. Nothing here decides what the user gets; it does, measures, and reports.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hexport.executorch.lowering.inside import programs
from hexport.executorch.lowering.inside.asking import Answers
from hexport.executorch.lowering.inside.configs import Settled, settled
from hexport.executorch.lowering.inside.kernels import missing_kernels
from hexport.executorch.lowering.inside.lowering import Lowering, Part
from hexport.executorch.lowering.inside.norms import join_norms
from hexport.executorch.lowering.inside.operators import base_name, op_name
from hexport.executorch.lowering.inside.placement import delegates, read_placement, source_line
from hexport.executorch.lowering.inside.programs import Program
from hexport.executorch.lowering.inside.quantizing import Quantisation
from hexport.executorch.lowering.inside.readying import readied
from hexport.executorch.lowering.inside.specs import compile_spec
from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.options import FLOAT, LoweringOptions
from hexport.executorch.lowering.requests import (
    DescribeReply,
    DescribeRequest,
    LowerReply,
    LowerRequest,
    MethodRequest,
    QuantizeRequest,
    ReferenceReply,
    ReferenceRequest,
)
from hexport.executorch.pte.partition import Partition
from hexport.executorch.pte.sidecar import Method
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve

_FOLDERS = re.compile(r"^.*?[/\\](?=[^/\\]+:\d+(:|$))")
"""All before the name in ``/a/b/model.py:12: the line``."""


@dataclass
class _Ready:
    """A method that can be lowered."""

    request: MethodRequest
    program: Program
    module: Any
    settled: Settled
    decibels: float | None = None
    notes: list[str] = field(default_factory=list)


def describe(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a program takes and gives, and its operators by name."""
    request = from_plain(DescribeRequest, arguments)
    exported = programs.load(request.program)
    module, _ = readied(exported)
    nodes = tuple(
        (node.name, op_name(node), programs.module_path(node))
        for node in module.graph.nodes
        if node.op == "call_function"
    )
    return _plain(
        DescribeReply(programs.declared_inputs(exported), programs.described_outputs(exported), nodes)
    )


def try_device(arguments: dict[str, Any]) -> dict[str, Any]:
    """Have the QNN libraries that were found make a device, as every lowering does first."""
    request = from_plain(QuantizeRequest, arguments)
    spec = compile_spec(request, LoweringOptions().compiling, "", in_float=request.fp16)
    try:
        with stack().tools.QnnManagerContext({"forward": spec}):
            return {}
    except RuntimeError as error:
        raise JobError("SdkUnusable", str(error)) from error


def lower(arguments: dict[str, Any]) -> dict[str, Any]:
    """One ``.pte`` of all methods."""
    request = from_plain(LowerRequest, arguments)
    seconds: dict[str, float] = {}
    with _timed(seconds, "import"):
        stack()
    with _timed(seconds, "quantise"):
        ready = [_make_ready(method, request.quantize, request.options) for method in request.methods]
    options = _applied(request, ready)
    lowering = Lowering(
        {one.request.name: _part(one) for one in ready},
        compile_spec(
            request.quantize,
            options.compiling,
            request.saver,
            in_float=request.quantize.scheme == FLOAT or any(one.settled.floats for one in ready),
        ),
        Path(request.log),
        bool(options.compiling.linear_to_conv2d),
        options.compiling.skip_mutable_buffer,
    )
    with _timed(seconds, "lower"):
        try:
            edge, answers = lowering.run()
        except SystemExit as recorded:
            # ExecuTorch ends the process when the Saver backend has written its files.
            if not options.compiling.saver:
                raise JobError("LoweringFailed", f"ExecuTorch ended the process: {recorded}") from recorded
            return _plain(_reply(ready, options, seconds, None))
    # Before it is written: that changes the graph in place.
    methods = tuple(_method(one, edge, answers) for one in ready)
    with _timed(seconds, "write"):
        _write(edge, request, options)
    for one in ready:
        if path := request.quantised.get(one.request.name):
            _save_quantised(one, path)
    return _plain(_reply(ready, options, seconds, methods))


def reference(arguments: dict[str, Any]) -> dict[str, Any]:
    """Outputs of the float program and of the quantised one, for the same samples."""
    request = from_plain(ReferenceRequest, arguments)
    method = request.method
    exported = programs.load(method.program)
    program = programs.at_sizes(method, exported, _first(method, exported))
    given = replace(method, samples=request.inputs, count=request.count)
    _run(program.exported.module(), program, given, Path(request.eager))
    notes: list[str] = []
    if request.quantize is not None and request.quantize.scheme != FLOAT:
        ready = _make_ready(method, request.quantize, request.options)
        _run(ready.module, program, given, Path(request.quantised))
        notes = [*ready.notes, *ready.settled.notes]
    return _plain(ReferenceReply(program.outputs, tuple(notes)))


def _make_ready(method: MethodRequest, request: QuantizeRequest, options: LoweringOptions) -> _Ready:
    exported = programs.load(method.program)
    program = programs.at_sizes(method, exported, _first(method, exported))
    module, notes = readied(program.exported)
    found = settled(request, module)
    ready = _Ready(method, program, module, found, notes=notes)
    if request.scheme == FLOAT:
        if not join_norms(module, apart=found.schemes):
            found.note("an override names a BatchNorm: none is joined to its convolution, which fp16 feels")
    else:
        quantised = Quantisation(method, program, module, request, options.quantizing, found).run()
        ready.module, ready.decibels = quantised.module, quantised.decibels
    return ready


def _first(method: MethodRequest, exported: Any) -> list[Any] | None:
    """The first sample, which is traced on: numbers that the program is made for."""
    return (
        programs.sample(method.samples, 0, len(programs.declared_inputs(exported))) if method.count else None
    )


def _part(ready: _Ready) -> Part:
    found = ready.settled
    return Part(ready.program, ready.module, frozenset(found.floats), frozenset(found.left))


def _applied(request: LowerRequest, ready: list[_Ready]) -> LoweringOptions:
    """With what the program itself settles."""
    compiling = request.options.compiling
    if compiling.linear_to_conv2d is None:
        blocks = any(one.settled.blocks for one in ready)
        compiling = replace(compiling, linear_to_conv2d=blocks)
        if blocks:
            ready[0].notes.append(
                "linear layers become convolutions: with weights in blocks the NPU gets linear layers wrong"
            )
    return replace(request.options, compiling=compiling)


def _write(edge: Any, request: LowerRequest, options: LoweringOptions) -> None:
    known = stack()
    if options.compiling.multi_contexts:
        for name in edge.methods:
            known.tools.update_spill_fill_size(edge.exported_program(name))
    own = options.compiling.shared_buffer
    # The application brings the memory of inputs and outputs where the NPU shares it.
    planning = known.exir.passes.MemoryPlanningPass(alloc_graph_input=not own, alloc_graph_output=not own)
    made = edge.to_executorch(known.exir.ExecutorchBackendConfig(memory_planning_pass=planning))
    missing = missing_kernels(made)
    if missing and not options.allow_missing_kernels:
        raise JobError("KernelMissing", "\n".join(_places(missing, edge)))
    with Path(request.output).open("wb") as stream:
        made.write_to_file(stream)


def _places(missing: tuple[str, ...], edge: Any) -> list[str]:
    """Operators without a kernel, each with where the user has it."""
    found = []
    for name in missing:
        base = name.partition("::")[2].partition(".")[0]
        nodes = [
            node
            for method in edge.methods
            for node in edge.exported_program(method).graph.nodes
            if node.op == "call_function" and base_name(node) == base
        ]
        told = [
            f"{programs.module_path(node) or 'the model itself'}, {source_line(node)}" for node in nodes[:3]
        ]
        found.append(f"{name} in {'; '.join(told)}" if told else name)
    return found


def _save_quantised(ready: _Ready, path: str) -> None:
    """The program of Q and DQ, for whoever compares the NPU with it."""
    torch, program = stack().torch, ready.program
    torch.export.save(
        torch.export.export(ready.module, program.args, dict(program.kwargs), strict=True), path
    )


def _reply(
    ready: list[_Ready],
    options: LoweringOptions,
    seconds: dict[str, float],
    methods: tuple[Method, ...] | None,
) -> LowerReply:
    notes = list(dict.fromkeys(note for one in ready for note in (*one.notes, *one.settled.notes)))
    decibels = {one.request.name: one.decibels for one in ready}
    return LowerReply(methods or (), tuple(notes), seconds, decibels, options, compiled=methods is not None)


def _method(ready: _Ready, edge: Any, answers: Answers) -> Method:
    name = ready.request.name
    exported = edge.exported_program(name)
    path = Path(ready.request.program)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    partition = _without_folders(read_placement(exported, delegates(exported), answers))
    return Method(name, ready.program.inputs, ready.program.outputs, partition, path.name, digest)


def _without_folders(partition: Partition) -> Partition:
    """Files by their names: the description is shipped, and the user's folders are not."""
    cpu = (replace(node, source=_FOLDERS.sub("", node.source)) for node in partition.cpu)
    return replace(partition, cpu=tuple(cpu))


def _run(module: Any, program: Program, given: MethodRequest, outputs: Path) -> None:
    import numpy as np

    torch = stack().torch
    for number, (args, kwargs) in enumerate(programs.samples(given, program)):
        with torch.no_grad():
            results = module(*args, **kwargs)
        found = [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
        np.savez(outputs / f"{number}.npz", *(one.contiguous().numpy() for one in found))


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[step] = round(time.perf_counter() - started, 3)


def _plain(record: object) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(record)
    return plain


if __name__ == "__main__":
    serve({"describe": describe, "try_device": try_device, "lower": lower, "reference": reference})
