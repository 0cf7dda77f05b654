"""A float model in integers on the simulator: what a rule that fits models for integers is judged by."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from hexport import facts
from hexport.backend.running import run_on_htp
from hexport.quantization.plan import SCHEMES, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.workshop import Workshop
from hexport.rewrite.applying import infer_shapes
from rule_checks import TARGET, Feeds, cpu


def in_integers(proto: onnx.ModelProto, scheme: str, feeds: Sequence[Feeds]) -> onnx.ModelProto:
    """The model quantised by nearest rounding, calibrated on ``feeds``."""
    model = ir.from_proto(proto)
    infer_shapes(model)
    for number, node in enumerate(model.graph):
        node.name = node.name or f"{node.op_type}{number}"
    arch = facts.find_target(TARGET).htp_arch
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(lambda: model, model, feeds, feeds, Path(folder), arch)
        plan = plan_for(model, SCHEMES[scheme], arch)
        return ir.to_proto(shop.build(plan, Recipe("min-max", correct_bias=False)))


def integer_sqnr(
    reference: onnx.ModelProto, proto: onnx.ModelProto, scheme: str, feeds: Sequence[Feeds]
) -> float:
    """Worst ratio, in dB, of ``proto`` quantised on the HTP to ``reference`` in float on the CPU."""
    quantised = in_integers(proto, scheme, feeds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "q.onnx")
        path.write_bytes(quantised.SerializeToString())
        results = run_on_htp(path, feeds, facts.find_target(TARGET)).outputs
    worst = np.inf
    for feed, outputs in zip(feeds, results, strict=True):
        for expected, got in zip(cpu(reference, feed), outputs.values(), strict=True):
            worst = min(worst, decibels(expected, got))
    return worst


def decibels(expected: np.ndarray, got: np.ndarray) -> float:
    """How far ``got`` is from ``expected``."""
    reference = expected.astype(np.float64)
    noise = float(np.sum((got.astype(np.float64) - reference) ** 2))
    return 10 * float(np.log10(np.sum(reference**2) / noise)) if noise > 0 else float("inf")


def equivalence(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Sequence[Feeds]) -> float:
    """Worst ratio, in dB, of two float models on the CPU; they give the same shapes and types."""
    worst = np.inf
    for feed in feeds:
        for old, new in zip(cpu(before, feed), cpu(after, feed), strict=True):
            assert (old.dtype, old.shape) == (new.dtype, new.shape)
            worst = min(worst, decibels(old, new))
    return worst
