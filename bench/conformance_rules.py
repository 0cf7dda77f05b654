"""A test's model after hexport's rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from hexport.rewrite.applying import apply_rules
from hexport.rewrite.catalogue import all_rules
from hexport.rewrite.rule import Purpose


def rewrite(model: Path, after: Path, purposes: Sequence[Purpose]) -> tuple[str, ...]:
    """Apply the rules for each purpose in turn and write the model to ``after``; gives the rules used."""
    changed = ir.from_proto(onnx.load(model))
    done: list[str] = []
    for purpose in purposes:
        present = {node.op_type for node in changed.graph.all_nodes()}
        chosen = [kind() for kind in all_rules() if kind.purpose is purpose and kind.cures & present]
        done += [application.rule for application in apply_rules(changed, chosen)]
    if done:
        after.write_bytes(ir.to_proto(changed).SerializeToString())
    return tuple(done)
