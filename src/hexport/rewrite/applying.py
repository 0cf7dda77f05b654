"""Applying rules to a model until none of them applies any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnxscript.rewriter import RewriteRuleSet

from hexport.rewrite.long_splits import know_long_splits
from hexport.rewrite.naming import name_what_is_new, names_in
from hexport.rewrite.rule import Rule
from hexport.rewrite.unused import remove_unused
from hexport.rewrite.values import fixed_shape

_MOST_ROUNDS = 10
"""A rule may make what another one takes; a pair that undoes each other must end all the same."""


@dataclass(frozen=True)
class Application:
    """A rule and the nodes it replaced."""

    rule: str
    nodes: tuple[str, ...]


def apply_rules(model: ir.Model, rules: Sequence[Rule], *, inferred: bool = False) -> tuple[Application, ...]:
    """Change ``model`` in place; gives what was done. Shapes are inferred before, unless they are already,
    and after every change."""
    if not rules:
        return ()
    engine = RewriteRuleSet([rule.bound() for rule in rules])
    if not inferred:
        infer_shapes(model)
    known = names_in(model)
    for _ in range(_MOST_ROUNDS):
        if not engine.apply_to_model(model):
            break
        name_what_is_new(model, known)
        infer_missing_shapes(model)
    found = tuple(Application(str(rule.name), tuple(rule.applied_to)) for rule in rules if rule.applied_to)
    if found:
        _remove_what_is_left_over(model)
    return found


def _remove_what_is_left_over(model: ir.Model) -> None:
    remove_unused(model.graph)
    values = (value for node in model.graph.all_nodes() for value in node.outputs)
    if any(not value.uses() and not value.is_graph_output() for value in values):
        # An optional output that nobody reads, or a node inside of a branch.
        passes.RemoveUnusedNodesPass()(model)


def infer_shapes(model: ir.Model) -> None:
    """ONNX's own inference, values of shape arithmetic included."""
    for node in model.graph.all_nodes():
        # The default is 1, and the inference takes it for 0: the result would be twice as large as it is.
        if node.op_type == "STFT" and "onesided" not in node.attributes:
            node.attributes["onesided"] = ir.AttrInt64("onesided", 1)
    inference = passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)
    inference(model)
    while know_long_splits(model):
        inference(model)


def infer_missing_shapes(model: ir.Model) -> None:
    """The same, where a value has no shape in numbers: ONNX's own needs a second model to do it."""
    values = [value for node in model.graph.all_nodes() for value in node.outputs if value.name]
    if any(value.dtype is None or fixed_shape(value) is None for value in values):
        infer_shapes(model)
