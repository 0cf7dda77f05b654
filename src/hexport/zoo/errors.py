"""What can go wrong in the zoo."""

from __future__ import annotations

from hexport.errors import HexportError


class UnknownZooModel(HexportError, LookupError):
    """There is no model of that name."""

    code = "HX201"


class ZooUnavailable(HexportError):
    """A wheel could not be fetched, and what is asked for is not in the cache."""

    code = "HX202"


class ZooHashMismatch(HexportError, ValueError):
    """What was fetched is not what is pinned; it was thrown away."""

    code = "HX203"


class ZooExportFailed(HexportError):
    """A checkpoint could not be exported to ONNX, or the export does not answer as torch does."""

    code = "HX204"
