"""Writing the prepared model: whole or not at all, with large weights in a file beside it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import onnx_ir as ir

from hexport.errors import UsageError
from hexport.model.external import LEAST_OUTSIDE

LARGE = 2**30
"""Weights of more than 1 GB do not go into the ONNX file: protobuf ends at 2 GB, and copies it thrice."""


def save(model: ir.Model, output: Path) -> None:
    """Write ``output``, and ``output``.data when the weights are large."""
    data = data_file(model, output)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".part", dir=output.parent))
    except OSError as error:
        raise _unwritable(output, error) from error
    try:
        ir.save(model, part / output.name, external_data=data, size_threshold_bytes=LEAST_OUTSIDE)
        # The data first: a model without its data is worse than data without a model.
        for name in filter(None, (data, output.name)):
            (part / name).replace(output.with_name(name))
    except OSError as error:
        raise _unwritable(output, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def data_file(model: ir.Model, output: Path) -> str | None:
    """The name of the file beside ``output`` that the weights go into; None when they stay in it."""
    return f"{output.name}.data" if _weight_bytes(model) > LARGE else None


def _weight_bytes(model: ir.Model) -> int:
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def _unwritable(output: Path, error: OSError) -> UsageError:
    return UsageError(f"{output} cannot be written", why=str(error), next="choose another -o")
