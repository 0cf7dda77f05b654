"""Why two things cannot be compared."""

from __future__ import annotations

from hexport.errors import HexportError


class NotVerifiable(HexportError, ValueError):
    """There is nothing to run, or nothing to compare with."""

    code = "HX821"
