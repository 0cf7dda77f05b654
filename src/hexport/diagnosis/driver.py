"""The bundled SDK against the device's own driver: the pair that ends processes without a word."""

from __future__ import annotations

from pathlib import Path

from hexport import facts
from hexport.diagnosis.installed import Distribution, Installed
from hexport.diagnosis.libraries import Libraries
from hexport.diagnosis.machine import Machine
from hexport.diagnosis.report import Finding, Status


def check_sdk(installed: Installed, libraries: Libraries) -> Finding | None:
    """The SDK inside the package: what the libraries say against what the release should have."""
    plugin = installed.plugin
    if plugin is None:
        return None
    expected, inside = facts.sdk_of(plugin.version), libraries.bundled_sdk
    if not inside and not expected:
        return Finding(
            "sdk",
            "warning",
            f"the QNN SDK inside {plugin} is unknown",
            why="without it nothing can be said about drivers",
            fix="update hexport, whose table of releases is older than this one",
        )
    if inside and expected and facts.parse_version(inside) != facts.parse_version(expected):
        return Finding(
            "sdk",
            "warning",
            f"the QNN libraries in the package are of SDK {inside}, but {plugin} came with {expected}",
            why="files of two releases are mixed; they are a matched pair",
            fix=f"python -m pip install --force-reinstall onnxruntime-qnn=={plugin.version}",
        )
    return Finding("sdk", "ok", f"QNN SDK {inside or expected} inside {plugin}")


def check_library_path(libraries: Libraries) -> Finding | None:
    """QNN libraries that LD_LIBRARY_PATH puts before the package's own."""
    if not libraries.on_path:
        return None
    bundled = libraries.bundled_sdk
    others = [library for library in libraries.on_path if library.sdk != bundled]
    if not others:
        return Finding("library-path", "ok", "LD_LIBRARY_PATH has QNN libraries, of the same SDK")
    first = others[0]
    return Finding(
        "library-path",
        "warning",
        f"LD_LIBRARY_PATH has {first.path} of SDK {first.sdk or 'unknown'}; the package has {bundled}",
        why="the loader takes it instead of the package's own, which then does not fit the provider: "
        "every node silently runs on the CPU",
        fix=f"take {Path(first.path).parent} off LD_LIBRARY_PATH (an SDK's envsetup script puts it there)",
    )


def check_driver(machine: Machine, installed: Installed, libraries: Libraries, htp_works: bool) -> Finding:
    """The NPU driver of this device.

    A backend that was seen to compute right outweighs any version: then a mismatch only warns.
    """
    if not machine.may_have_npu:
        return _no_device(machine, libraries)
    bad: Status = "warning" if htp_works else "problem"
    driver, source = _driver_sdk(libraries)
    if not driver:
        return _unknown_driver(machine, libraries, bad, htp_works)
    plugin = installed.plugin
    bundled = libraries.bundled_sdk or (facts.sdk_of(plugin.version) if plugin else None) or ""
    if not plugin or not bundled:
        return Finding("driver", "ok", f"the device has QNN {driver} ({source})")
    # Build numbers do not count: 2.51.0.260929 is 2.51.0.
    if facts.parse_version(bundled)[:3] <= facts.parse_version(driver)[:3]:
        return Finding("driver", "ok", f"the device has QNN {driver} ({source}), not older than {bundled}")
    rule = next(rule for rule in facts.rules() if rule.id == "driver-not-older")
    return Finding(
        "driver",
        bad,
        f"the device has QNN {driver} ({source}), older than the {bundled} inside {plugin}",
        why=f"{rule.statement} {rule.symptom}",
        fix=_other_release(driver, machine, plugin),
    )


def check_skeletons(machine: Machine, libraries: Libraries, htp_works: bool) -> Finding:
    """The NPU's own side of the library, and how it is found."""
    if not machine.may_have_npu or machine.system == "windows":
        reason = "the Windows driver finds them" if machine.may_have_npu else "no NPU here"
        return Finding("skeletons", "ok", f"skeleton libraries need no setting: {reason}")
    why = "the NPU loads libQnnHtpV*Skel.so from the folders in ADSP_LIBRARY_PATH"
    path = machine.env.get("ADSP_LIBRARY_PATH", "")
    folders = [folder for folder in path.split(";") if folder]
    bundled = [library for library in libraries.bundled if library.name.endswith("Skel.so")]
    folder = Path(bundled[0].path).parent if bundled else "FOLDER-WITH-THE-SKELETONS"
    fix = f'export ADSP_LIBRARY_PATH="{folder}"'
    missing = [folder for folder in folders if not Path(folder).is_dir()]
    if missing:
        found = f"ADSP_LIBRARY_PATH names {', '.join(missing)}, which does not exist"
        return Finding("skeletons", "warning", found, why=why, fix=fix)
    if htp_works:
        return Finding("skeletons", "ok", "skeleton libraries are found")
    if not folders:
        return Finding("skeletons", "warning", "ADSP_LIBRARY_PATH is not set", why=why, fix=fix)
    if not any(any(Path(folder).glob("libQnnHtpV*Skel.so")) for folder in folders):
        found = f"no libQnnHtpV*Skel.so in ADSP_LIBRARY_PATH ({path})"
        return Finding("skeletons", "warning", found, why=why, fix=fix)
    return Finding("skeletons", "ok", f"skeleton libraries in {path}")


def _no_device(machine: Machine, libraries: Libraries) -> Finding:
    use = "simulator and compiler only" if machine.simulates else "compiler only"
    sdk = f"; QNN_SDK_ROOT has SDK {libraries.sdk_root}, not used" if libraries.sdk_root else ""
    return Finding("driver", "ok", f"no NPU here: {use}{sdk}")


def _driver_sdk(libraries: Libraries) -> tuple[str, str]:
    """The newest of the driver's libraries (Windows keeps old packages), else the installed SDK's."""
    known = [library for library in libraries.system if library.sdk]
    if known:
        newest = max(known, key=lambda library: facts.parse_version(library.sdk))
        return newest.sdk, newest.path
    return libraries.sdk_root, "QNN_SDK_ROOT"


def _unknown_driver(machine: Machine, libraries: Libraries, bad: Status, htp_works: bool) -> Finding:
    if htp_works:
        return Finding("driver", "ok", "the NPU answers; its driver does not tell its version")
    if libraries.system:
        return Finding(
            "driver",
            "warning",
            f"an NPU driver is here ({libraries.system[0].path}), but does not tell its version",
            why="the SDK inside onnxruntime-qnn must not be newer than the driver",
            fix="update the NPU driver, or try an older onnxruntime-qnn",
        )
    if machine.system == "windows":
        fix = "install the NPU driver: Windows Update, or Qualcomm's Hexagon NPU driver for this machine"
    else:
        fix = "install FastRPC (Debian and Ubuntu: apt install libfastrpc1), or use the vendor's image"
    return Finding(
        "driver",
        bad,
        "no NPU driver was found",
        why="the processor is Arm, but nothing here reaches a Hexagon NPU",
        fix=f"{fix}; on an Arm machine without a Qualcomm NPU, use Linux x86_64 for the simulator",
    )


def _other_release(driver: str, machine: Machine, plugin: Distribution) -> str:
    update = "update the device's NPU driver"
    release = facts.newest_release_for(driver, machine.platform)
    if release is None:
        return f"{update}: no release of onnxruntime-qnn for {machine.platform} is old enough"
    # A version of two numbers stands for all its patch releases.
    version = release.version if release.version.count(".") > 1 else f"{release.version}.*"
    install = f"python -m pip install 'onnxruntime-qnn=={version}' (QNN SDK {release.sdk})"
    if facts.parse_version(release.version)[0] < 2 <= facts.parse_version(plugin.version)[0]:
        return f"{update}; the newest release for this one is older than hexport can drive: {install}"
    return f"{install}, or {update}"
