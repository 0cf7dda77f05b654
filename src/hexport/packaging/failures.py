"""Every way in which a package can be refused, each its own error."""

from __future__ import annotations

from hexport.errors import HexportError


class PackageError(HexportError):
    """The package cannot be used."""

    code = "HX600"


class NotAPackage(PackageError, ValueError):
    """There is no package there, or its manifest is not one."""

    code = "HX601"


class PackageTooNew(PackageError, ValueError):
    """The manifest is of a schema that this hexport does not know."""

    code = "HX602"


class PackageIncomplete(PackageError, FileNotFoundError):
    """A file that the manifest names is missing or has another size."""

    code = "HX603"


class PackageTampered(PackageError, ValueError):
    """A file is not the one that was packaged: its SHA-256 differs."""

    code = "HX604"


class UnsafePath(PackageError, ValueError):
    """A path in a manifest or an archive leads out of the package, or is no name on some system."""

    code = "HX605"


class UnsafeArchive(PackageError, ValueError):
    """A zip that is no packed package, is damaged, or would unpack to far more than it says."""

    code = "HX606"


class PackageNotWritten(PackageError, OSError):
    """The package could not be put in its place; what was there before still is."""

    code = "HX607"
