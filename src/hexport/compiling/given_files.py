"""What to say about files that were given along with the models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hexport.backend.op_affinity import pinned_types
from hexport.compiling.options import CompileOptions
from hexport.compiling.sources import Source


def unmet_pins(options: CompileOptions, sources: Sequence[Source]) -> Iterator[str]:
    """Operators that ``op_affinity`` pins and no model has: most likely a slip, and nobody would say so."""
    if "op_affinity" not in options.more:
        return
    there = {node.op for source in sources for node in source.model.graph.walk()}
    for op in pinned_types(options.more["op_affinity"]):
        if op not in there:
            yield f"op_affinity pins {op}, and no model has such a node"


def library_notes(libraries: Sequence[str]) -> Iterator[str]:
    """What a model with operators of its own needs wherever it is loaded."""
    for library in libraries:
        yield (
            f"operators of {Path(library).name} stay in the model: whoever loads it has to register the "
            "library first (SessionOptions.register_custom_ops_library)"
        )
