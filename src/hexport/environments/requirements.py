"""From what the user asks for to what pip installs: the pairs come from ``facts``, not from pip's solver.

The metadata of onnxruntime-qnn only names the oldest onnxruntime, so that pip would take the newest, which
some releases do not work with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hexport import facts
from hexport.environments.failures import DoesNotFit
from hexport.errors import UsageError

PROVIDER, HOST, EXECUTORCH = "onnxruntime-qnn", "onnxruntime", "executorch"
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([0-9][0-9A-Za-z.!+]*)")
_RELEASES: Mapping[str, Callable[[], Sequence[facts.Plugin | facts.ExecutorchRelease]]] = {
    PROVIDER: facts.plugins,
    EXECUTORCH: facts.executorch_releases,
}
"""What can be asked for without a version."""
_FIRST_PLUGIN = (2,)
_ROOM_MB = 600
"""For releases that are not in the table."""


@dataclass(frozen=True)
class Surroundings:
    """The interpreter that the environment is made from."""

    python: str
    """Its version."""
    platform: str

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    def fits(self, pythons: Sequence[str], platforms: Sequence[str]) -> bool:
        """Whether there is a wheel for it."""
        return self.minor in pythons and self.platform in platforms


@dataclass(frozen=True)
class Plan:
    """What is installed, in the order of pip's calls."""

    requirements: tuple[str, ...]
    """Every pin, sorted: two plans with the same are the same toolchain."""
    steps: tuple[tuple[str, ...], ...]
    room_mb: int
    notes: tuple[str, ...] = ()

    @property
    def pins(self) -> dict[str, str]:
        """Version by package."""
        return dict(pin.split("==") for pin in self.requirements)


def is_pin(text: str) -> bool:
    """Whether it is PACKAGE==VERSION."""
    return _PIN.fullmatch(text.strip()) is not None


def read_pins(specs: Iterable[str], around: Surroundings | None = None) -> dict[str, str]:
    """``onnxruntime-qnn==2.3.0`` → version by package; a name alone is its newest known release."""
    pins: dict[str, str] = {}
    for spec in specs:
        match = _PIN.fullmatch(spec.strip())
        name = _normal(match[1] if match else spec)
        if match is None and name not in _RELEASES:
            raise UsageError(
                f"{spec!r} is not PACKAGE==VERSION",
                why="a toolchain is of one version, so that it stays what it is",
                next=f"for example {_example(name)}; `hexport doctor --suggest` tells the one to use",
            )
        version = match[2] if match else newest(name, around)
        if pins.setdefault(name, version) != version:
            raise UsageError(f"{name} is given in two versions: {pins[name]} and {version}")
    return pins


def newest(name: str, around: Surroundings | None = None) -> str:
    """The newest release in hexport's table, of those that have a wheel there; of all, if none has."""
    known = _RELEASES[name]()
    fitting = [r for r in known if around is not None and around.fits(r.pythons, r.platforms)]
    return max((r.version for r in fitting or known), key=facts.parse_version)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _example(name: str) -> str:
    package = EXECUTORCH if name.startswith(EXECUTORCH) else PROVIDER
    return f"{package}=={newest(package)}"


def make_plan(specs: Sequence[str], around: Surroundings) -> Plan:
    """What to install for ``specs`` there, or why it does not go together."""
    pins = read_pins(specs, around)
    if EXECUTORCH in pins:
        plan = _for_executorch(pins, around)
    elif PROVIDER in pins:
        plan = _for_provider(pins, around)
    else:
        raise UsageError(
            f"a toolchain is of {PROVIDER} or of {EXECUTORCH}",
            why=f"asked for: {', '.join(pins) or 'nothing'}",
            next=f"for example hexport toolchain add {PROVIDER}=={newest(PROVIDER, around)}",
        )
    taken = [_normal(spec) for spec in specs if not is_pin(spec)]
    notes = [f"{name} {pins[name]}: the newest release that this hexport knows of" for name in taken]
    return replace(plan, notes=(*notes, *plan.notes))


def _for_provider(pins: dict[str, str], around: Surroundings) -> Plan:
    version = pins[PROVIDER]
    if facts.parse_version(version) < _FIRST_PLUGIN:
        raise DoesNotFit(
            f"hexport cannot drive {PROVIDER} {version}",
            why="1.x is built into onnxruntime's own module; hexport drives the plugin of 2.x",
            next="hexport doctor --suggest",
        )
    plugin = facts.find_plugin(version)
    if plugin is None:
        note = f"{PROVIDER} {version} is not in this hexport's table: pip chooses what goes with it"
        return Plan(_all(pins), (_all(pins),), _ROOM_MB, (note,))
    check_pair(plugin, pins.get(HOST, plugin.tested))
    _check_place(f"{PROVIDER} {version}", plugin.pythons, plugin.platforms, around)
    complete = {**pins, PROVIDER: plugin.version, HOST: pins.get(HOST, plugin.tested)}
    return Plan(_all(complete), (_all(complete),), plugin.room_mb)


def _for_executorch(pins: dict[str, str], around: Surroundings) -> Plan:
    release = next((r for r in facts.executorch_releases() if r.version == pins[EXECUTORCH]), None)
    if release is None:
        known = ", ".join(r.version for r in facts.executorch_releases())
        raise DoesNotFit(
            f"it is not known which QNN libraries {EXECUTORCH} {pins[EXECUTORCH]} works with",
            why=f"it was built for one version of them and fails with others; known: {known}",
            next=f"hexport toolchain add {EXECUTORCH}=={facts.executorch_releases()[-1].version}",
        )
    _check_place(f"{EXECUTORCH} {release.version}", release.pythons, release.platforms, around)
    # Without what their metadata asks for: it is much, and only training needs it.
    alone = {**read_pins([*release.alone, f"{PROVIDER}=={release.plugin}"]), EXECUTORCH: release.version}
    for name, version in alone.items():
        if pins.get(name, version) != version:
            raise DoesNotFit(
                f"{EXECUTORCH} {release.version} does not work with {name} {pins[name]}",
                why=release.source,
                next=f"leave {name} out: {version} is installed",
            )
    asked = {name: version for name, version in pins.items() if name not in alone}
    beside = tuple(spec for spec in release.beside if spec.partition("==")[0] not in asked)
    steps = (("--no-deps", *_all(alone)), (*_all(asked), *beside))
    pinned = read_pins(spec for spec in beside if is_pin(spec))
    return Plan(_all({**alone, **asked, **pinned}), steps, release.room_mb)


def check_pair(plugin: facts.Plugin, onnxruntime: str) -> None:
    """Refuse a host runtime that the provider does not work with."""
    if not plugin.accepts(onnxruntime):
        raise DoesNotFit(
            f"{PROVIDER} {plugin.version} does not work with {HOST} {onnxruntime}",
            why=f"it works with {HOST} {plugin.onnxruntime}",
            next=f"leave {HOST} out: {plugin.tested} is installed",
        )


def _check_place(
    what: str, pythons: tuple[str, ...], platforms: tuple[str, ...], around: Surroundings
) -> None:
    if around.platform not in platforms:
        raise DoesNotFit(
            f"{what} has no wheel for {around.platform}",
            why=f"there are wheels for {', '.join(platforms)}",
            next="hexport doctor --suggest tells a release that has one",
        )
    if around.minor not in pythons:
        raise DoesNotFit(
            f"{what} has no wheel for Python {around.minor}",
            why=f"there are wheels for {', '.join(pythons)}",
            next="name another Python: --python PATH",
        )


def _all(pins: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}" for name, version in sorted(pins.items()))
