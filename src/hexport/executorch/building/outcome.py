"""What ``build --format pte`` made, and how close it is to PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexport.executorch.lowering.outcome import Lowered
from hexport.observe.decibels import USELESS_DB, finite
from hexport.verification.measuring import OutputFinding


@dataclass(frozen=True)
class Verified:
    """One method on the simulator, beside the module itself."""

    outputs: tuple[OutputFinding, ...]
    samples: int
    origin: str
    """What the samples are, in words."""
    drop: float | None = None
    """What the user's metric lost."""

    @property
    def sqnr_db(self) -> float:
        return min(one.sqnr_db for one in self.outputs)


@dataclass(frozen=True)
class Goal:
    """What was asked for: dB, or what a metric may lose; neither: that it is of any use."""

    min_sqnr: float | None = None
    max_drop: float | None = None

    def met_by(self, found: Verified) -> bool:
        if self.max_drop is not None:
            return found.drop is not None and found.drop <= self.max_drop
        return found.sqnr_db >= (USELESS_DB if self.min_sqnr is None else self.min_sqnr)

    def __str__(self) -> str:
        """What was asked for, in words; empty: nothing was."""
        if self.max_drop is not None:
            return f"at most {self.max_drop:g} lost"
        return "" if self.min_sqnr is None else f"{self.min_sqnr:g} dB"


@dataclass(frozen=True)
class PteBuilt:
    """A ``.pte``, and what was measured of it."""

    lowered: Lowered
    verified: Mapping[str, Verified]
    """By method; empty: it cannot run here, for the reason in the notes."""
    goal: Goal
    tried: Mapping[str, float]
    """Scheme → dB of its worst method, where several were tried."""
    seconds: float

    @property
    def met(self) -> bool:
        """Whether the goal was reached. What could not be run here has reached none."""
        asked = bool(str(self.goal))
        found = self.verified.values()
        return all(self.goal.met_by(one) for one in found) and (bool(found) or not asked)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        verified = {
            name: {
                "sqnr_db": finite(one.sqnr_db),
                "samples": one.samples,
                "inputs": one.origin,
                "metric_drop": one.drop,
                "outputs": [output.to_json() for output in one.outputs],
            }
            for name, one in self.verified.items()
        }
        return {
            **self.lowered.to_json(),
            "seconds": round(self.seconds, 1),
            "verified": verified,
            "goal": {"min_sqnr_db": self.goal.min_sqnr, "max_drop": self.goal.max_drop},
            "met": self.met,
            "tried": {scheme: finite(found) for scheme, found in self.tried.items()},
        }
