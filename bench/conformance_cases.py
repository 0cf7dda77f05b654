"""The ONNX standard's own operator tests as files: one model and one set of inputs each."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Two runs of these differ by design.
RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


@dataclass(frozen=True)
class Case:
    """A test of the standard: its name, the operator it is about, and its files."""

    name: str
    op: str
    model: Path
    inputs: Path


def write_cases(folder: Path, only: str = "") -> list[Case]:
    """Every test whose inputs are plain tensors and whose name holds ``only``, written into ``folder``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tests divide by zero to make their data
        from onnx.backend.test.case.node import collect_testcases

        found: list[Any] = list(collect_testcases(None))
    ops = {case.name: _first_op(case) for case in found}
    written = []
    for i, case in enumerate(found):
        if only not in case.name:
            continue
        # An expanded test spells one operator in others; it counts for the operator it spells.
        base = re.sub(r"_expanded(_ver\d+)?$", "", case.name)
        entry = Case(case.name, ops.get(base, ops[case.name]), folder / f"{i}.onnx", folder / f"{i}.npz")
        arrays = _plain_inputs(case)
        if arrays is None or not RANDOM.isdisjoint(_op_types(case.model.graph)) or _trains_dropout(entry):
            continue
        entry.model.write_bytes(case.model.SerializeToString())
        np.savez(entry.inputs, **arrays)  # type: ignore[arg-type]  # no input is named like an option
        written.append(entry)
    return written


def _first_op(case: Any) -> str:
    return str(case.model.graph.node[0].op_type)


def _op_types(graph: Any) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _op_types(attribute.g)


def _trains_dropout(case: Case) -> bool:
    return case.op == "Dropout" and "training" in case.name


def _plain_inputs(case: Any) -> dict[str, np.ndarray] | None:
    """The inputs by name, or None where numpy has no such type (strings, sequences, four-bit numbers)."""
    values = [*case.model.graph.input, *case.model.graph.output]
    if any(value.type.WhichOneof("value") != "tensor_type" for value in values):
        return None
    inputs = dict(zip([value.name for value in case.model.graph.input], case.data_sets[0][0], strict=False))
    if not all(isinstance(value, (np.ndarray, np.generic)) for value in inputs.values()):
        return None
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return None if any(array.dtype.kind not in "biuf" for array in arrays.values()) else arrays
