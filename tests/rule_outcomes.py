"""What a rule left behind: the operators of the result, or the reasons why it did not apply."""

from __future__ import annotations

import onnx

from hexport.rewrite.rule import Rule
from rule_checks import rewritten


def op_types(proto: onnx.ModelProto) -> set[str]:
    """Operators of the main graph."""
    return {node.op_type for node in proto.graph.node}


def reasons(proto: onnx.ModelProto, rule: Rule) -> str:
    """Why a rule that must not apply did not."""
    _, done = rewritten(proto, rule)
    assert not done
    return " ".join(why for _, why in rule.missed)
