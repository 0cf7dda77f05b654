"""Pad's amounts, wherever the opset keeps them."""

from __future__ import annotations

import numpy as np

from hexport.rewrite.node_rule import NodeRule
from hexport.rewrite.values import constant


def pads_of(rule: NodeRule, rank: int) -> list[tuple[int, int]] | str:
    """Before and after for every axis of the node's input; or why they are not known."""
    amounts = constant(rule.input(1))
    if amounts is None:
        return "the pads are not constant"
    axes = list(range(rank))
    if rule.input(3) is not None:
        named = constant(rule.input(3))
        if named is None:
            return "the axes are not constant"
        axes = [int(axis) % rank for axis in np.asarray(named, np.int64)]
    pairs = np.asarray(amounts, np.int64).reshape(2, len(axes))
    pads = [(0, 0)] * rank
    for axis, before, after in zip(axes, *pairs.tolist(), strict=True):
        pads[axis] = (before, after)
    return pads
