"""One set of integers for all buckets: what was calibrated at one size is used at the others.

Ranges and weights are those of the largest bucket, byte for byte, so that the compiler finds the same weights
in every graph and stores them once.
"""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from hexport.preparation.saving import save


def adopt(model: Path, settled: Path, output: Path) -> int:
    """Write ``model`` with every constant of ``settled`` that it has by the same name and in the same form.

    Gives how many bytes of its constants it still has to itself.
    """
    own, other = ir.load(model), ir.load(settled)
    theirs = other.graph.initializers
    alone = 0
    for name, value in own.graph.initializers.items():
        mine, found = value.const_value, theirs.get(name)
        there = None if found is None else found.const_value
        if mine is None or there is None or there.dtype != mine.dtype or there.shape != mine.shape:
            alone += 0 if mine is None else mine.nbytes
        else:
            value.const_value = ir.tensor(there.numpy(), dtype=there.dtype, name=name)
    save(own, output)
    return alone
