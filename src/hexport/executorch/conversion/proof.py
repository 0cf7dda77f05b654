"""The proof of a conversion: the ``.pte`` by ExecuTorch and the ONNX model by ONNX Runtime, bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hexport import facts
from hexport.backend.running import run_on_htp
from hexport.errors import HexportError
from hexport.executorch.conversion.outcome import ConvertedTensor, Proof
from hexport.executorch.pte.toolchain import with_executorch, with_onnxruntime
from hexport.executorch.running.loading import load_pte
from hexport.toolchain import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray


def prove(
    pte: Path,
    model: Path,
    method: str,
    soc_model: int,
    inputs: tuple[ConvertedTensor, ...],
    outputs: tuple[ConvertedTensor, ...],
    limits: Limits | None,
) -> Proof:
    """Run both on the same numbers. What keeps one of them from running is told, and proves nothing."""
    sample = {tensor.pte: _random(tensor, seed) for seed, tensor in enumerate(inputs)}
    try:
        with with_executorch():
            mine = load_pte(pte, method=method, limits=limits).run([sample]).outputs[0]
        with with_onnxruntime():
            renamed = {tensor.graph: sample[tensor.pte] for tensor in inputs}
            theirs = run_on_htp(model, [renamed], facts.find_target(soc_model), limits=limits).outputs[0]
    except HexportError as error:
        return Proof(None, f"{error.what}: {error.why}".strip(": "))
    different = _different(mine, theirs, outputs)
    return Proof(not different, f"the two give other numbers for {different}" if different else "")


def _different(
    mine: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]], outputs: tuple[ConvertedTensor, ...]
) -> str:
    for tensor in outputs:
        one, other = mine[tensor.pte], theirs[tensor.graph]
        if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
            return tensor.pte
    return ""


def _random(tensor: ConvertedTensor, seed: int) -> NDArray[Any]:
    rng, dtype = np.random.default_rng(seed), np.dtype(tensor.dtype)
    if dtype.kind == "f":
        values: Any = rng.normal(size=tensor.shape)
    elif tensor.scale is not None:
        span = np.iinfo(dtype)
        values = rng.integers(span.min, span.max, tensor.shape, endpoint=True)
    else:
        values = rng.integers(0, 2, tensor.shape)  # the safest guess for indices and masks
    return np.asarray(values).astype(dtype)
