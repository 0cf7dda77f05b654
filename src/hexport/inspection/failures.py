"""What keeps a thing from being looked into."""

from __future__ import annotations

from hexport.errors import HexportError


class NotInspectable(HexportError, ValueError):
    """It is of no kind that hexport knows."""

    code = "HX661"


class DamagedFile(HexportError, ValueError):
    """It begins like a known kind, and is not sound."""

    code = "HX662"
