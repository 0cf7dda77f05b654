"""What goes together in an environment of its own: provider, host runtime, Python, platform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from hexport.facts.load import Release, read_entries
from hexport.facts.versions import find_release, parse_version
from hexport.records import RecordError

_BOUND = re.compile(r"(>=|<|==)(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Plugin:
    """A release of onnxruntime-qnn that is a plugin, with what it works with."""

    version: str
    onnxruntime: str
    """The range that works: ``>=1.24.2,<1.27``."""
    tested: str
    """The onnxruntime of that range that it is installed with."""
    pythons: tuple[str, ...]
    backends: tuple[str, ...]
    """Whose library every wheel of it carries."""
    room_mb: int
    """Free space that an environment with it should find."""
    source: str

    def __post_init__(self) -> None:
        for bound in self.onnxruntime.split(","):
            if not _BOUND.fullmatch(bound):
                raise RecordError(f"onnxruntime: {bound!r} is not >=, < or == and a version")
        if not self.accepts(self.tested):
            raise RecordError(f"tested: {self.tested} is not in {self.onnxruntime}")

    @property
    def sdk(self) -> str:
        """The QNN SDK inside it."""
        return self._release.sdk

    @property
    def platforms(self) -> tuple[str, ...]:
        """Where there is a wheel of it."""
        return self._release.platforms

    @property
    def _release(self) -> Release:
        release = find_release(self.version)
        assert release is not None
        return release

    def accepts(self, onnxruntime: str) -> bool:
        """Whether it works with that version of onnxruntime."""
        have = parse_version(onnxruntime)
        checks = {">=": have.__ge__, "<": have.__lt__, "==": have.__eq__}
        return all(checks[op](parse_version(limit)) for op, limit in _BOUND.findall(self.onnxruntime))


@dataclass(frozen=True)
class ExecutorchRelease:
    """A release of ExecuTorch, whose Qualcomm backend wants the QNN libraries of one plugin."""

    version: str
    plugin: str
    """The onnxruntime-qnn release whose libraries it loads."""
    alone: tuple[str, ...]
    """Installed with it, without what their metadata asks for."""
    beside: tuple[str, ...]
    """What it really needs of that."""
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    room_mb: int
    source: str


@cache
def plugins() -> tuple[Plugin, ...]:
    """Every release that hexport can drive, oldest first."""
    return read_entries("toolchains.toml", "plugin", Plugin)


@cache
def executorch_releases() -> tuple[ExecutorchRelease, ...]:
    """Those that were seen to work."""
    return read_entries("toolchains.toml", "executorch", ExecutorchRelease)


def find_plugin(version: str) -> Plugin | None:
    """The entry of that release; None: it is not in the table."""
    return next((p for p in plugins() if parse_version(p.version) == parse_version(version)), None)


def plugin_for(driver_sdk: str | None, platform: str) -> Plugin | None:
    """The newest release with a wheel for ``platform`` whose SDK is not newer than the driver's, if given."""
    driver = parse_version(driver_sdk)[:3] if driver_sdk else None
    fitting = [
        plugin
        for plugin in plugins()
        if platform in plugin.platforms and (driver is None or parse_version(plugin.sdk) <= driver)
    ]
    return max(fitting, key=lambda plugin: parse_version(plugin.version), default=None)
