"""What the user asks of the precision: passed on to the quantiser as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.storage import file_digest

if TYPE_CHECKING:
    from hexport.quantization.judging import Metric


@dataclass(frozen=True)
class Wishes:
    """Of the scheme and the accuracy."""

    scheme: str
    min_sqnr: float | None = None
    metric: str | Metric | None = None
    max_drop: float | None = None
    override: Path | None = None
    keep_float: tuple[str, ...] = ()
    effort: str = "normal"

    @property
    def is_keepable(self) -> bool:
        """The user's own measure may change from one run to the next without a trace."""
        return self.metric is None

    def by_content(self) -> dict[str, Any]:
        """For the key of a result."""
        return {
            "scheme": self.scheme,
            "min_sqnr": self.min_sqnr,
            "max_drop": self.max_drop,
            "override": file_digest(self.override) if self.override else "",
            "keep_float": list(self.keep_float),
            "effort": self.effort,
        }
