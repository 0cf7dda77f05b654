"""Einsum's equation taken apart: one string of labels an operand, and the output's."""

from __future__ import annotations

import string
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Equation:
    """Every operand's labels in order, ellipses written out, and the output's labels."""

    operands: tuple[str, ...]
    output: str


class NotUnderstood(ValueError):
    """The equation does not fit its operands, or asks for what a contraction cannot do."""


def parse(text: str, ranks: tuple[int, ...]) -> Equation:
    """Ellipses become labels of their own, aligned at the right as broadcasting does."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise NotUnderstood(f"{len(terms)} terms for {len(ranks)} operands")
    free = [label for label in string.ascii_letters if label not in text]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if any(count < 0 or (count > 0 and "..." not in term) for count, term in zip(hidden, terms, strict=True)):
        raise NotUnderstood("the equation does not fit the ranks of the operands")
    widest = max(hidden)
    shared = "".join(free[:widest])
    operands = tuple(
        term.replace("...", shared[widest - count :]) for term, count in zip(terms, hidden, strict=True)
    )
    if any(len(set(labels)) < len(labels) for labels in operands):
        raise NotUnderstood("a label stands twice in one operand: a diagonal")
    if arrow:
        output = right.replace("...", shared)
    else:
        seen = Counter("".join(term.replace("...", "") for term in terms))
        output = shared + "".join(sorted(label for label, count in seen.items() if count == 1))
    if not set(output) <= set("".join(operands)) or len(set(output)) < len(output):
        raise NotUnderstood("the output has a label twice, or one that no operand has")
    return Equation(operands, output)
