"""Which release carries which QNN SDK, and what it needs around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hexport.facts.load import releases, rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hexport.facts.load import Release, Rule
    from hexport.toolchain.interpreter import Interpreter

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """The numbers a version begins with, without closing zeros: ``v2.40.0.251030`` → (2, 40, 0, 251030)."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    if not match:
        raise ValueError(f"{text!r} does not begin with a version number")
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def find_release(version: str) -> Release | None:
    """The entry for that onnxruntime-qnn version; one of two numbers stands for its patch releases."""
    numbers = re.findall(r"\d+", version)[:3]
    by_version = {release.version: release for release in releases()}
    return by_version.get(".".join(numbers)) or by_version.get(".".join(numbers[:2]))


def sdk_of(release: str) -> str | None:
    """The QNN SDK inside that onnxruntime-qnn release, or None when it is not known."""
    found = find_release(release)
    return found.sdk if found else None


def newest_release_for(driver_sdk: str, platform: str | None = None) -> Release | None:
    """The newest release whose SDK is not newer than the driver's, with a wheel for ``platform`` if given."""
    driver = parse_version(driver_sdk)[:3]
    fitting = [
        release
        for release in releases()
        if parse_version(release.sdk) <= driver and (platform is None or platform in release.platforms)
    ]
    # "1.20" stands for the patch releases after 1.20.0, so the SDK decides between equals.
    return max(fitting, key=lambda r: (parse_version(r.version), parse_version(r.sdk)), default=None)


def broken_rules(release: str, present: Mapping[str, str], platform: str = "") -> tuple[Rule, ...]:
    """The rules that this release breaks with what is ``present``.

    ``present`` maps ``onnxruntime``, ``glibc`` and ``driver`` to versions. What is not in it is taken
    for unknown and breaks nothing.
    """
    return tuple(
        rule
        for rule in rules()
        if rule.needs and _concerns(rule, release, platform) and not _holds(rule.needs, release, present)
    )


def on_platform(platforms: tuple[str, ...], platform: str) -> bool:
    """Whether ``platform`` (``linux-x86_64``) is meant by the list; ``linux`` means all of Linux, () all."""
    return not platforms or any(platform == name or platform.startswith(f"{name}-") for name in platforms)


def current_platform() -> str:
    """Where native code runs, in the words of the data files: ``linux-x86_64``, ``windows-arm64``."""
    import platform

    if chosen := _toolchain():
        return chosen.platform
    system, machine = platform.system().lower(), platform.machine().lower()
    # Python says AMD64 and ARM64 on Windows, x86_64 and aarch64 on Linux, arm64 on macOS.
    names = {"amd64": "x86_64", "aarch64": "arm64"} if system == "windows" else {"arm64": "aarch64"}
    return f"{system}-{names.get(machine, machine)}"


def installed_release() -> str | None:
    """The onnxruntime-qnn that native code will use, or None."""
    from importlib import metadata

    if chosen := _toolchain():
        return chosen.packages.get("onnxruntime-qnn")
    try:
        return metadata.version("onnxruntime-qnn")
    except metadata.PackageNotFoundError:
        return None


def _toolchain() -> Interpreter | None:
    from hexport.toolchain.interpreter import in_force  # its room is not needed to look at data files

    return in_force()


def _concerns(rule: Rule, release: str, platform: str) -> bool:
    version = parse_version(release)
    return (
        (not rule.since or version >= parse_version(rule.since))
        and (not rule.before or version < parse_version(rule.before))
        and on_platform(rule.platforms, platform)
    )


def _holds(needs: str, release: str, present: Mapping[str, str]) -> bool:
    thing, operator, *rest = needs.split()
    if operator == "absent":
        return thing not in present
    wanted = sdk_of(release) if rest == ["{sdk}"] else rest[0]
    if thing not in present or wanted is None:
        return True
    have, limit = parse_version(present[thing]), parse_version(wanted)
    return {">=": have >= limit, "<=": have <= limit, "<": have < limit}[operator]
