"""A test's model after hexport's rules, and after the clean-up that `hexport prepare` begins with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import onnx
import onnx_ir as ir

from hexport.preparation import cleaning
from hexport.rewrite.applying import apply_rules
from hexport.rewrite.catalogue import all_rules
from hexport.rewrite.rule import Purpose

# The steps that take nodes away; the others only tidy what real models have and these tests have not.
_STEPS = (cleaning.fold, cleaning.in_float32, cleaning.tidy)


def rewrite(model: Path, after: Path, purposes: Sequence[Purpose]) -> tuple[str, ...]:
    """Apply the rules for each purpose in turn and write the model to ``after``; gives the rules used."""
    changed = load(model)
    done = _apply(changed, purposes)
    if done:
        write(changed, after)
    return done


def clean(model: Path, after: Path) -> tuple[str, ...]:
    """The clean-up, then all rules."""
    changed = load(model)
    for step in _STEPS:
        with suppress(Exception):  # a step that fails, or whose model cannot be copied, is dropped as there
            changed = _copied(step(_copied(changed), after.parent))
    done = _apply(changed, (Purpose.SUPPORT, Purpose.FAULT))
    write(changed, after)
    return done


def load(model: Path) -> ir.Model:
    """A test's file as hexport works on it."""
    return ir.from_proto(onnx.load(model))


def write(model: ir.Model, file: Path) -> None:
    file.write_bytes(ir.to_proto(model).SerializeToString())


def _copied(model: ir.Model) -> ir.Model:
    """Nothing shared: a clone shares its tensors' types, and a step may change those in place."""
    return ir.from_proto(ir.to_proto(model.clone()))


def _apply(model: ir.Model, purposes: Sequence[Purpose]) -> tuple[str, ...]:
    done: list[str] = []
    for purpose in purposes:
        present = {node.op_type for node in model.graph.all_nodes()}
        chosen = [kind() for kind in all_rules() if kind.purpose is purpose and kind.cures & present]
        done += [application.rule for application in apply_rules(model, chosen)]
    return tuple(done)
