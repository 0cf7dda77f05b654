"""What ``compare`` found: the rows, and whether B is worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hexport.comparison.rows import Row
from hexport.comparison.sides import Side
from hexport.comparison.tolerance import Tolerance
from hexport.errors import HexportError
from hexport.observe.verdict import CpuNode
from hexport.records import to_plain


@dataclass(frozen=True)
class SideBySide:
    """One model through two compilers or backends."""

    subject: str
    """What was compared, as the user called it."""
    compiled: str
    """The file that both sides compiled."""
    reference: str
    target: str | None
    bucket: str | None
    input_shapes: dict[str, tuple[int, ...]]
    samples: int
    inputs: str
    """Where the inputs are from."""
    real_inputs: bool
    a: Side
    b: Side
    failures: dict[str, HexportError]
    """Side → why it failed; sides that did not are not in it."""
    rows: tuple[Row, ...]
    new_cpu_nodes: tuple[CpuNode, ...]
    """On the CPU with B, and not with A."""
    tolerance: Tolerance
    notes: tuple[str, ...]
    seconds: float

    @property
    def worse(self) -> tuple[Row, ...]:
        """The figures in which B is worse beyond the tolerance."""
        return tuple(row for row in self.rows if row.worse)

    @property
    def passed(self) -> bool:
        """Both sides did their work, and B is not worse."""
        return not self.worse and not self.failures

    def row(self, figure: str) -> Row:
        """The row of a figure, which must be there."""
        return next(row for row in self.rows if row.figure == figure)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        own: dict[str, Any] = {
            key: to_plain(value)
            for key, value in vars(self).items()
            if key not in ("a", "b", "failures", "rows")
        }
        sides = {
            name: {**side.to_json(), "error": error.to_json() if error else None}
            for name, side, error in (
                ("a", self.a, self.failures.get("a")),
                ("b", self.b, self.failures.get("b")),
            )
        }
        return {
            "schema_version": 1,
            "passed": self.passed,
            **own,
            "sides": sides,
            "worse": [row.figure for row in self.worse],
            "rows": [row.to_json() for row in self.rows],
        }
