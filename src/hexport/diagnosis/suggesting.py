"""``doctor --suggest``: from the driver or SDK of the device to the release of onnxruntime-qnn to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hexport import facts
from hexport.diagnosis.libraries import Libraries, look_at_libraries
from hexport.diagnosis.machine import Machine, this_machine
from hexport.errors import UsageError
from hexport.records import to_plain
from hexport.storage.place import cache_root


@dataclass(frozen=True)
class Suggestion:
    """The release to use, or why there is none."""

    platform: str
    driver: str
    """The QNN SDK version that must not be passed; empty: nothing here sets one."""
    source: str
    """Where that is known from."""
    release: str
    """Of onnxruntime-qnn; empty when none fits."""
    sdk: str
    onnxruntime: str
    backends: tuple[str, ...]
    installed: str
    """The release that hexport's own Python has; empty: none."""
    why: str
    command: str
    """What to type; empty when nothing is to be done."""

    @property
    def found(self) -> bool:
        return bool(self.release)

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain}


def suggest(driver: str | None = None) -> Suggestion:
    """The newest release for this machine whose SDK is not newer than its driver's.

    ``driver`` is the version of another device's driver, for which this machine shall compile.
    """
    machine = this_machine(cache_root())
    if driver is not None:
        return suggest_for(machine, _checked(driver), "--driver", facts.installed_release() or "")
    sdk, source = _limit(look_at_libraries(machine, None))
    return suggest_for(machine, sdk, source, facts.installed_release() or "")


def suggest_for(machine: Machine, driver: str, source: str, installed: str) -> Suggestion:
    """The same for any machine."""
    plugin = facts.plugin_for(driver or None, machine.platform)
    if plugin is None:
        why = _why_none(machine.platform, driver)
        return Suggestion(machine.platform, driver, source, "", "", "", (), installed, why, "")
    why = (
        f"the newest release for {machine.platform} whose QNN SDK ({plugin.sdk}) is not newer than {driver}"
        if driver
        else f"the newest release for {machine.platform}; nothing here limits it"
    )
    return Suggestion(
        machine.platform,
        driver,
        source,
        plugin.version,
        plugin.sdk,
        plugin.tested,
        plugin.backends,
        installed,
        why,
        _command(plugin, machine, installed),
    )


def _checked(driver: str) -> str:
    try:
        facts.parse_version(driver)
    except ValueError as error:
        raise UsageError(
            f"--driver {driver!r} is not a version",
            why=str(error),
            next="for example --driver 2.47.0; `hexport doctor` on the device tells it",
        ) from error
    return driver


def _limit(libraries: Libraries) -> tuple[str, str]:
    """The newest of the driver's libraries (Windows keeps old packages), else the SDK that is installed."""
    known = [library for library in libraries.system if library.sdk]
    if known:
        newest = max(known, key=lambda library: facts.parse_version(library.sdk))
        return newest.sdk, str(Path(newest.path))
    return libraries.sdk_root, "QNN_SDK_ROOT" if libraries.sdk_root else ""


def _command(plugin: facts.Plugin, machine: Machine, installed: str) -> str:
    if installed and facts.parse_version(installed) == facts.parse_version(plugin.version):
        return ""
    minor = ".".join(map(str, machine.python[:2]))
    other = "" if minor in plugin.pythons else f" --python PATH-OF-PYTHON-{plugin.pythons[-1]}"
    return f"hexport toolchain add onnxruntime-qnn=={plugin.version}{other}"


def _why_none(platform: str, driver: str) -> str:
    here = [plugin for plugin in facts.plugins() if platform in plugin.platforms]
    if not here:
        return f"no release of onnxruntime-qnn that hexport can drive has a wheel for {platform}"
    oldest = min(here, key=lambda plugin: facts.parse_version(plugin.sdk))
    return (
        f"the oldest for {platform} that hexport can drive is {oldest.version} with QNN SDK {oldest.sdk}, "
        f"newer than {driver}: update the device's NPU driver"
    )
