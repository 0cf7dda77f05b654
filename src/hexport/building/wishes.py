"""What the user asks of the precision: passed on to the quantiser as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexport.storage import file_digest

if TYPE_CHECKING:
    from hexport.quantization.judging import Metric


SCHEMES = ("fp16", "8a8w", "16a8w", "16a16w", "16a4w", "16a4w_block")
"""The quantiser's, by name: to know them must not take what it takes to use them."""
AUTO = "auto"


@dataclass(frozen=True)
class Wishes:
    """Of the scheme and the accuracy."""

    scheme: str
    min_sqnr: float | None = None
    metric: str | Metric | None = None
    max_drop: float | None = None
    override: str | Path | None = None
    keep_float: tuple[str, ...] = ()
    ranges: str | None = None
    without: tuple[str, ...] = ()
    effort: str = "normal"

    @property
    def for_integers(self) -> tuple[str, ...]:
        """The options that were given and mean nothing for a model in float."""
        given = {
            "--metric": self.metric is not None,
            "--max-drop": self.max_drop is not None,
            "--override": self.override is not None,
            "--keep-float": bool(self.keep_float),
            "--ranges": self.ranges is not None,
            "--without": bool(self.without),
        }
        return tuple(option for option, is_given in given.items() if is_given)

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
            "override": file_digest(Path(self.override)) if self.override else "",
            "keep_float": list(self.keep_float),
            "ranges": self.ranges,
            "without": sorted(self.without),
            "effort": self.effort,
        }
