"""Why two sides cannot be compared."""

from __future__ import annotations

from hexport.errors import HexportError


class NothingCompared(HexportError):
    """Both sides failed: neither can be called worse."""

    code = "HX831"
