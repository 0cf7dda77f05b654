"""What is written beside a ``.pte`` that was made of a context binary: names, types and encodings."""

from __future__ import annotations

from pathlib import Path

from hexport.environments.requirements import EXECUTORCH
from hexport.executorch.conversion.outcome import ConvertedTensor
from hexport.executorch.pte.partition import Delegate, Partition
from hexport.executorch.pte.sidecar import Method, Sidecar, TensorSpec, file_sha256, write_sidecar
from hexport.facts import Soc
from hexport.toolchain import Interpreter
from hexport.version import __version__

SCHEME = "as compiled"
"""The binary was made before, and does not say how."""


def describe_beside(
    pte: Path,
    binary: Path,
    given: Path,
    interpreter: Interpreter,
    soc: Soc,
    graph: str,
    inputs: tuple[ConvertedTensor, ...],
    outputs: tuple[ConvertedTensor, ...],
    notes: tuple[str, ...],
) -> Path:
    """Gives the path of what was written."""
    release = interpreter.packages.get("onnxruntime-qnn", "")
    encodings = {
        tensor.pte: {"scale": tensor.scale, "zero_point": tensor.zero_point}
        for tensor in (*inputs, *outputs)
        if tensor.scale is not None
    }
    partition = Partition((Delegate(graph, 1, {"EPContext": 1}, 0, binary.stat().st_size),), ())
    method = Method(graph, _specs(inputs), _specs(outputs), partition, given.name, file_sha256(given))
    sidecar = Sidecar(
        __version__,
        interpreter.packages[EXECUTORCH],
        f"onnxruntime-qnn {release}" if release else "the user's own SDK",
        SCHEME,
        soc.chip,
        soc.soc_model,
        soc.htp_arch,
        (method,),
        {"encodings": encodings},
        notes=notes,
        pte_sha256=file_sha256(pte),
    )
    return write_sidecar(pte, sidecar)


def _specs(tensors: tuple[ConvertedTensor, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tensor.pte, tensor.dtype, tensor.shape) for tensor in tensors)
