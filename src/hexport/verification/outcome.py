"""What ``verify`` found, and whether that is good enough."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from hexport.errors import UsageError
from hexport.observe.decibels import USELESS_DB
from hexport.verification.measuring import OutputFinding


@dataclass(frozen=True)
class Rule:
    """What every output must be; None: not asked for."""

    min_sqnr_db: float | None
    rtol: float | None = None
    atol: float | None = None
    why: str = "asked for"
    """Where the figures come from."""

    @property
    def tolerance(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def met_by(self, output: OutputFinding) -> bool:
        enough = self.min_sqnr_db is None or output.sqnr_db >= self.min_sqnr_db
        return not output.note and enough and (output.within or not self.tolerance)

    def __str__(self) -> str:
        parts = [] if self.min_sqnr_db is None else [f"{self.min_sqnr_db:g} dB or more"]
        if self.tolerance:
            parts.append(f"within rtol {self.rtol or 0:g} and atol {self.atol or 0:g}")
        return f"{' and '.join(parts)} ({self.why})"


def make_rule(
    min_sqnr: float | None, rtol: float | None, atol: float | None, *, otherwise: float | None
) -> Rule:
    """The user's wishes; where there are none, ``otherwise`` is what the package was asked for."""
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if value is not None and not (isfinite(value) and value >= 0):
            raise UsageError(f"{name} {value:g}: a tolerance is 0 or more")
    if min_sqnr is not None and not isfinite(min_sqnr):
        raise UsageError(f"--min-sqnr {min_sqnr:g}: give a number of decibels, for example 30")
    if min_sqnr is None and rtol is None and atol is None:
        if otherwise is not None:
            return Rule(otherwise, why="what the package was built for")
        return Rule(USELESS_DB, why="nothing was asked for: give --min-sqnr, or --rtol and --atol")
    return Rule(min_sqnr, rtol, atol)


@dataclass(frozen=True)
class Match:
    """Two sides on the same inputs."""

    subject: str
    """What was verified, as the user called it."""
    ran: str
    """The file of it that was run."""
    reference: str
    backend: str
    target: str | None
    bucket: str | None
    samples: int
    inputs: str
    """Where the inputs are from."""
    real_inputs: bool
    true_dims: dict[str, int]
    """The sizes of the inputs when they were filled up to the bucket; empty: they had its own."""
    npu_nodes: int
    cpu_nodes: int
    """Of what was run: who computed how many nodes, by ONNX Runtime's word."""
    rule: Rule
    outputs: tuple[OutputFinding, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def failing(self) -> tuple[OutputFinding, ...]:
        """The outputs that are not what was asked for."""
        return tuple(output for output in self.outputs if not self.rule.met_by(output))

    @property
    def passed(self) -> bool:
        return not self.failing

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        plain = {key: value for key, value in vars(self).items() if key not in ("rule", "outputs", "notes")}
        return {
            "schema_version": 1,
            "passed": self.passed,
            **plain,
            "required": vars(self.rule),
            "outputs": [{**o.to_json(), "passed": self.rule.met_by(o)} for o in self.outputs],
            "notes": list(self.notes),
        }
