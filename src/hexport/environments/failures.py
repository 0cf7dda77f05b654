"""Why a toolchain cannot be made, used or removed; each leaves things as they were."""

from __future__ import annotations

from hexport.errors import HexportError


class ToolchainError(HexportError):
    """Something about a toolchain could not be done."""

    code = "HX320"


class UnknownToolchain(ToolchainError, LookupError):
    """No toolchain of that name."""

    code = "HX321"


class ToolchainNotMade(ToolchainError):
    """The environment could not be made; nothing of it is left."""

    code = "HX322"


class DoesNotFit(ToolchainError, ValueError):
    """What was asked for does not go together: release, host runtime, Python, platform."""

    code = "HX323"


class PackageUnavailable(ToolchainError):
    """The index has no such version, or none for this Python and platform."""

    code = "HX324"


class IndexUnreachable(ToolchainError, ConnectionError):
    """pip could not reach its index."""

    code = "HX325"


class NoRoom(ToolchainError):
    """The disk has not enough room for the environment."""

    code = "HX326"


class ToolchainBroken(ToolchainError):
    """It is installed, but a tiny graph does not run right in it."""

    code = "HX327"


class NotOurs(ToolchainError):
    """Asked to remove what hexport did not make."""

    code = "HX328"


class ToolchainExists(ToolchainError):
    """The name is taken by something else."""

    code = "HX329"


class BadInterpreter(ToolchainError):
    """The Python that was named cannot be used."""

    code = "HX330"


class ToolchainChanged(ToolchainError):
    """Other packages are installed there than those that were verified."""

    code = "HX331"
