"""Clean-up by well-kept libraries, one after the other: each takes a model and gives another.

Nothing here is trusted: the caller runs every result and drops it if it does not compute the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir
import onnx_ir.passes.common as passes

from hexport.backend.calling import MODULE, call
from hexport.backend.requests import OptimizeRequest
from hexport.rewrite.applying import infer_shapes
from hexport.rewrite.identities import remove_identities
from hexport.rewrite.newer_opset import to_opset
from hexport.rewrite.precision.to_float32 import ToFloat32
from hexport.toolchain import Limits, Worker

_OPSET = 17
_MOST_ROUNDS = 5
"""What one round folds may let ONNX infer the shapes that the next one folds."""

Step = Callable[[ir.Model, Path], ir.Model]


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """A library's warnings of what it does not fold: the rules see to it, or the report names what stays."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def fold(model: ir.Model, _: Path) -> ir.Model:
    """onnxscript's constant folding: functions inlined, shape arithmetic gone, constant Ifs replaced.

    Its full optimiser is not used: it takes `Add(x, 1e-8)` for no operation, which before a Log it is not.
    """
    from onnxscript import optimizer

    passes.InlinePass()(model)
    for _round in range(_MOST_ROUNDS):
        infer_shapes(model)
        with _quiet("onnxscript.optimizer"):
            folded = optimizer.fold_constants(
                model,
                input_size_limit=2**20,
                output_size_limit=2**22,
                should_fold=lambda node: True if node.op_type == "ConstantOfShape" else None,
            )
        if not folded.modified:
            break
    passes.RemoveUnusedNodesPass()(model)
    return model


def newer_opset(model: ir.Model, _: Path) -> ir.Model:
    """Opset 17 at least: before 11 the NPU ignores the bounds of a Clip, and rules write newer forms."""
    return to_opset(model, _OPSET)


def in_float32(model: ir.Model, _: Path) -> ir.Model:
    """The NPU has no float64."""
    ToFloat32(ir.DataType.DOUBLE)(model)
    return model


def tidy(model: ir.Model, _: Path) -> ir.Model:
    """onnx-ir's passes: Constants become initializers, what is the same is computed once, the rest goes."""
    ir.passes.Sequential(
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.LiftSubgraphInitializersToMainGraphPass(),
        passes.RemoveInitializersFromInputsPass(),
        passes.CommonSubexpressionEliminationPass(),
    )(model)
    remove_identities(model)
    ir.passes.Sequential(
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        passes.RemoveUnusedOpsetsPass(),
        passes.NameFixPass(),
    )(model)
    return model


def slim(model: ir.Model, _: Path) -> ir.Model:
    """onnxslim: dead code, shape arithmetic and fusions it knows."""
    import onnxslim

    result: ir.Model = ir.from_proto(onnxslim.slim(ir.to_proto(model)))
    return result


def basic_level(model: ir.Model, folder: Path) -> ir.Model:
    """ONNX Runtime's basic optimisations, which need no particular processor; in a worker."""
    before, after = folder / "before_basic.onnx", folder / "after_basic.onnx"
    ir.save(model, before)
    with Worker(MODULE, folder / "native.log", limits=Limits(seconds=300)) as worker:
        call(worker, "optimize_model", OptimizeRequest(str(before), str(after)))
    result = ir.load(after)
    ir.external_data.load_to_model(result)
    return result


STEPS: tuple[tuple[str, Step], ...] = (
    ("newer opset", newer_opset),
    ("fold", fold),
    ("float64 to float32", in_float32),
    ("tidy", tidy),
    ("onnxslim", slim),
    ("basic level", basic_level),
    ("tidy again", tidy),
)
