"""What no code can be written for."""

from __future__ import annotations

from hexport.errors import HexportError


class NoSnippet(HexportError, ValueError):
    """The package has nothing to call, or what the language cannot pass."""

    code = "HX671"
