"""Bringing a prepared float model into the forms that integers carry well."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as passes

from hexport.rewrite.applying import Application, apply_rules, infer_shapes
from hexport.rewrite.identities import remove_identities
from hexport.rewrite.integers.catalogue import integer_rules
from hexport.rewrite.precision.to_float32 import ToFloat32
from hexport.rewrite.rule import Rule
from hexport.rewrite.support.bias_gelu_to_gelu import BiasGeluToGelu
from hexport.rewrite.support.fast_gelu_to_tanh import FastGeluToTanh
from hexport.rewrite.support.gelu_from_erf import GeluFromErf
from hexport.rewrite.support.gemm_scale import GemmScale
from hexport.rewrite.support.pow_to_mul import PowToMul
from hexport.rewrite.unused import remove_unused

_ALSO: tuple[type[Rule], ...] = (GeluFromErf, BiasGeluToGelu, FastGeluToTanh, GemmScale)
"""Rules against refusals that serve integers as well, where the NPU takes the form, in pieces."""
_LAST: tuple[type[Rule], ...] = (PowToMul,)
"""After the norms, which are told by their Pow."""
_MOST_ROUNDS = 8


def fit_for_integers(model: ir.Model) -> tuple[Application, ...]:
    """Change ``model``, whose shapes are inferred, until nothing more can be done; gives what was done."""
    done: dict[str, list[str]] = {}
    _widen(model)
    for _ in range(_MOST_ROUNDS):
        # What one round leaves behind is gone in the next: values that had two readers then have one.
        applied = apply_rules(model, [rule() for rule in (*_ALSO, *integer_rules())], inferred=True)
        applied += apply_rules(model, [rule() for rule in _LAST], inferred=True)
        if not applied:
            break
        for application in applied:
            done.setdefault(application.rule, []).extend(application.nodes)
    _tidy(model)
    return tuple(Application(rule, tuple(nodes)) for rule, nodes in done.items())


def _widen(model: ir.Model) -> None:
    """float16 becomes float32, and the Casts between them go: weights must be constants to be quantised."""
    if not ToFloat32(ir.DataType.FLOAT16)(model).modified:
        return
    for node in list(model.graph):
        source = node.inputs[0] if node.op_type == "Cast" else None
        idle = source is not None and source.dtype == ir.DataType(node.attributes.get_int("to", 0))
        if source is not None and idle and not node.outputs[0].is_graph_output():
            node.outputs[0].replace_all_uses_with(source)
            model.graph.remove(node, safe=True)
    infer_shapes(model)


def _tidy(model: ir.Model) -> None:
    """Constants as initializers and a name for everything, as a prepared model has them."""
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    remove_identities(model)
    remove_unused(model.graph)
    passes.NameFixPass()(model)
