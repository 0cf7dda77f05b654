"""What was compiled against what was asked for.

The wrapper model repeats the options; only the binary tells what the compiler made of them. A chip that it
does not know becomes v68 without an error, and other options can be lost on the way just as quietly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hexport import facts
from hexport.backend.compiling import Batch
from hexport.backend.context_binary import ContextBinary, ContextGraph
from hexport.backend.failures import WrongTarget
from hexport.compiling.options import CompileOptions
from hexport.compiling.refusals import CompiledOtherwise
from hexport.compiling.sources import Source
from hexport.facts import Soc
from hexport.toolchain.last_words import last_words


def refuse_differences(
    batch: Batch, sources: Sequence[Source], chips: Sequence[Soc], options: CompileOptions, log: Path
) -> None:
    """Raise for the first thing in ``batch`` that is not as it was asked for."""
    _refuse_wrong_chips(batch.contexts, chips, log)
    differences = [
        *_graph_differences(batch),
        *_setting_differences(batch.contexts, options),
        *_version_differences(batch),
        *(d for source in sources for d in _shape_differences(batch.contexts, source)),
        *_file_differences(batch),
    ]
    if differences:
        raise CompiledOtherwise(
            "the compiler made something else than was asked for",
            why="\n".join(differences),
            next="leave out the option that is named, or use another onnxruntime-qnn release; "
            "--native-log FILE keeps what the compiler said",
            native_log=last_words(log),
        )


def _refuse_wrong_chips(contexts: Sequence[ContextBinary], chips: Sequence[Soc], log: Path) -> None:
    asked = sorted((chip.soc_model, chip.htp_arch) for chip in chips)
    found = sorted((context.soc_model or 0, context.htp_arch or 0) for context in contexts)
    if asked != found:
        raise WrongTarget(
            f"asked for {', '.join(map(_said, asked))}",
            why=f"the compiler made code for {', '.join(map(_said, found))}",
            next="use an onnxruntime-qnn release that knows the chip",
            native_log=last_words(log),
        )


def _said(chip: tuple[int, int]) -> str:
    return f"SoC {chip[0] or '?'}, v{chip[1] or '?'}"


def _graph_differences(batch: Batch) -> Iterator[str]:
    """Every graph that a model calls is in the binary, with as many inputs and outputs, and no other is."""
    calls = {call.graph: call for product in batch.products for call in product.model.calls}
    for context in batch.contexts:
        graphs = {graph.name: graph for graph in context.graphs}
        for name in sorted(calls.keys() ^ graphs.keys()):
            where = "no model calls it" if name in graphs else "the binary does not have it"
            yield f"graph {name}: {where}"
        for name in sorted(calls.keys() & graphs.keys()):
            wanted = len(calls[name].inputs), len(calls[name].outputs)
            found = len(graphs[name].inputs), len(graphs[name].outputs)
            if wanted != found:
                yield f"graph {name}: has {found} inputs and outputs, the model gives it {wanted}"


def _setting_differences(contexts: Sequence[ContextBinary], options: CompileOptions) -> Iterator[str]:
    for context in contexts:
        for graph in context.graphs:
            yield from _graph_settings(context, graph, options)


def _graph_settings(context: ContextBinary, graph: ContextGraph, options: CompileOptions) -> Iterator[str]:
    asked = {"vtcm_mb": options.vtcm_mb or None, "finalization": options.finalization}
    found = {"vtcm_mb": graph.vtcm_mb, "finalization": graph.optimization_level}
    for key, value in asked.items():
        if value is not None and found[key] is not None and found[key] != value:
            where = f"graph {graph.name} for SoC {context.soc_model}"
            yield f"{key}: {value} was asked for, {where} has {found[key]}"


def _version_differences(batch: Batch) -> Iterator[str]:
    release = facts.installed_release()
    expected = facts.sdk_of(release) if release else None
    written = {call.build_id for product in batch.products for call in product.model.calls}
    for context in batch.contexts:
        if expected is not None and context.sdk != expected:
            yield f"QNN SDK: the binary is of {context.sdk}, onnxruntime-qnn {release} has {expected}"
        if written - {context.build_id}:
            yield f"QNN SDK: the binary is of {context.build_id}, the model says {', '.join(sorted(written))}"


def _shape_differences(contexts: Sequence[ContextBinary], source: Source) -> Iterator[str]:
    """Inputs of the model that a graph takes under their own name have the model's shape.

    With several models in one binary each has its own graphs, so that an input may have any of their shapes.
    """
    for name, shape in source.shapes.items():
        found = {t.shape for c in contexts for g in c.graphs for t in g.inputs if t.name == name}
        if found and without_ones(shape) not in {without_ones(other) for other in found}:
            shapes = " or ".join(map(str, sorted(found)))
            yield f"input {name!r}: {source.given} has {shape}, the binary {shapes}"


def _file_differences(batch: Batch) -> Iterator[str]:
    """Models and binary lie in one folder, and the models name it by its name alone."""
    for product in batch.products:
        main = product.model.main_call
        if main is not None and batch.binary is not None and main.cache != batch.binary.name.encode():
            yield f"{product.model.path.name} looks for {main.cache!r}, the binary is {batch.binary.name}"


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of one element do not count: a scalar has one in the binary, and a Gemm's bias loses its own."""
    return tuple(size for size in shape if size != 1)
