"""The compiler's own mistakes: forms it takes and computes wrongly, fails on late, or dies of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hexport.facts.load import one_of, read_entries
from hexport.records import RecordError

EFFECTS = ("wrong", "fails", "kills")


@dataclass(frozen=True)
class Fault:
    """One mistake, on which nodes it shows, and what cures it."""

    op: str
    effect: str
    """``wrong`` numbers without a word, the session or run ``fails``, or it ``kills`` the process."""
    form: str
    """Which nodes, in words; the rule's own check is the exact condition."""
    source: str
    rule: str = ""
    """The rewrite rule that puts a right form there; empty when no rule can."""
    pin: bool = False
    """The rule keeps the node on the CPU, because no form is right on the NPU."""
    attributes: tuple[str, ...] = ()
    """Attributes, ``name=value``, or ``name`` for any value, of which one must be given for it to show."""
    before_opset: int | None = None
    """It shows in models of an older opset only."""
    depends_on_memory: bool = False
    """It shows only where other work has left its traces: right in a fresh process, wrong in a used one."""
    tests: tuple[str, ...] = ()
    """Tests of the ONNX standard that show it."""
    note: str = ""

    def __post_init__(self) -> None:
        one_of(self.effect, EFFECTS, "effect")
        if self.pin and not self.rule:
            raise RecordError(f"{self.op}: pin belongs to a rule")
        if not self.rule and not self.note:
            raise RecordError(f"{self.op}: a fault without a rule needs a note that says why")


@cache
def faults() -> tuple[Fault, ...]:
    """Every known mistake."""
    return read_entries("faults.toml", "fault", Fault)
