"""DLC files against what was asked for: each holds the graph that it should, for this model, of this SDK."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hexport import facts
from hexport.compiling.dlc_outcome import DlcFile
from hexport.compiling.reading_back import without_ones
from hexport.compiling.refusals import CompiledOtherwise
from hexport.compiling.sources import Source
from hexport.observe.verdict import Verdict
from hexport.toolchain.last_words import last_words


def refuse_other_content(files: Sequence[DlcFile], source: Source, verdict: Verdict, log: Path) -> None:
    """Raise for what in ``files`` is not as it should be; ``verdict`` says how many graphs there are."""
    differences = [*_count_differences(files, verdict), *(d for f in files for d in _differences(f, source))]
    if not differences and len(files) == 1 and verdict.full and not verdict.io_quantization:
        differences = list(_whole_differences(files[0], source))
    if differences:
        raise CompiledOtherwise(
            "the DLC is not what was asked for",
            why="\n".join(differences),
            next="use another onnxruntime-qnn release; --native-log FILE keeps what the libraries said",
            native_log=last_words(log),
        )


def _count_differences(files: Sequence[DlcFile], verdict: Verdict) -> Iterator[str]:
    if len(files) != len(verdict.partitions):
        yield f"{len(verdict.partitions)} graphs were composed, and {len(files)} files were written"


def _differences(file: DlcFile, source: Source) -> Iterator[str]:
    graphs = file.content.contents
    if len(graphs) != 1 or not graphs[0].name or not graphs[0].operators:
        yield f"{file.path.name}: holds {len(graphs)} graphs that can be read, and should hold one"
        return
    expected = facts.sdk_of(facts.installed_release() or "")
    if expected and not file.content.sdk.startswith(f"{expected}."):
        yield f"{file.path.name}: is of QNN SDK {file.content.sdk or '?'}, the release has {expected}"
    for tensor in graphs[0].inputs:
        shape = source.shapes.get(tensor.name)
        found = tuple(dim for dim in tensor.dims or () if isinstance(dim, int))
        if shape is not None and without_ones(found) != without_ones(shape):
            yield f"input {tensor.name!r}: {source.given} has {shape}, the DLC {found}"


def _whole_differences(file: DlcFile, source: Source) -> Iterator[str]:
    """With the whole model in one graph nothing else goes in or out; what nothing reads is left out."""
    graph = source.model.graph
    for what, found, known in (
        ("input", file.graph.inputs, graph.inputs),
        ("output", file.graph.outputs, graph.outputs),
    ):
        for tensor in found:
            if tensor.name not in known:
                yield f"{what} {tensor.name!r}: the DLC has it, {source.given} does not"
    missing = [name for name in graph.outputs if name not in {t.name for t in file.graph.outputs}]
    if missing:
        yield f"output {missing[0]!r}: {source.given} has it, the DLC does not"
