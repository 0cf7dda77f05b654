"""How exact the layers are on the NPU: tensors inside the quantised model, beside those of the float model.

What is looked at becomes an output, which keeps the compiler from fusing across it: it is done on a copy,
and for a few layers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexport.backend.failures import BackendError
from hexport.observe.comparing import compare
from hexport.quantization.candidates import Candidate
from hexport.quantization.judging import Judge
from hexport.quantization.observing import exposed_session
from hexport.quantization.roles import kind_of
from hexport.quantization.workshop import Workshop
from hexport.toolchain import WorkerError

MOST = 16
"""Layers that are looked at, spread evenly over the model."""


@dataclass(frozen=True)
class LayerFigure:
    """One layer's result on the NPU against the float model's, all that came before it included."""

    node: str
    sqnr_db: float


def layers_on_npu(
    shop: Workshop, judge: Judge, best: Candidate
) -> tuple[tuple[LayerFigure, ...], tuple[str, ...]]:
    """In the order of the graph; none when the model with those outputs fails, and what to say of that."""
    model = shop.of(best.recipe).model
    copy = best.model.clone()
    inside = {str(value.name): value for node in copy.graph for value in node.outputs}
    there = [
        (str(node.name), str(node.outputs[0].name))
        for node in model.graph
        if (known := kind_of(node)) is not None
        and known.kind != "moving"
        and f"{node.outputs[0].name}_dq_reals" in inside
    ]
    chosen = _spread(there, MOST)
    if not chosen:
        return (), ("no layer of it is in integers, so none was measured on the NPU",)
    copy.graph.outputs[:] = [inside[f"{tensor}_dq_reals"] for _, tensor in chosen]
    tensors = [tensor for _, tensor in chosen]
    session = exposed_session(model, tensors, judge.folder / "layers.onnx")
    right = dict(zip(tensors, session.run(tensors, dict(judge.samples[0])), strict=True))
    try:
        got = judge.outputs_on_npu(copy, judge.samples[:1])[0]
    except (BackendError, WorkerError) as error:
        return (), (f"its layers could not be measured on the NPU: {error.what}",)
    named = {tensor: got[f"{tensor}_dq_reals"] for tensor in tensors}
    found = {output.name: output.sqnr_db for output in compare([right], [named]).outputs}
    return tuple(LayerFigure(node, found[tensor]) for node, tensor in chosen), ()


def _spread(items: Sequence[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
