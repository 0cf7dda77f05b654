"""What would crash native code, refused before native code sees it."""

from __future__ import annotations

from hexport import facts
from hexport.packaging import Package
from hexport.packaging.manifest import Target
from hexport.runtime.device import Device
from hexport.runtime.failures import Incompatible


def refuse_incompatible(package: Package, target: Target, on_npu: bool, device: Device) -> None:
    """Raise :class:`Incompatible` for a newer SDK than this machine's, or a higher HTP generation."""
    made = _version(package.manifest.toolchain.qnn_sdk)
    if made is None:
        raise Incompatible(
            f"{package.folder} does not say with which QNN SDK it was made",
            why=f"its manifest says {package.manifest.toolchain.qnn_sdk!r}; an SDK that is too new crashes",
            next="build it again",
        )
    _refuse_sdk(package, made, device.sdk, "the QNN SDK of the installed onnxruntime-qnn", "update it")
    if not on_npu:
        return
    driver = device.driver_sdk
    _refuse_sdk(package, made, driver, "the QNN of this device's NPU driver", "update the driver")
    installed, limit = _version(device.sdk), _version(driver)
    if installed is not None and limit is not None and installed > limit:
        raise Incompatible(
            f"the installed onnxruntime-qnn brings QNN SDK {device.sdk}; the NPU's driver has {driver}",
            why="libraries that are newer than the driver end the process",
            next="run `hexport doctor`, which names the release that fits",
        )
    if device.soc is not None and target.htp_arch > device.soc.htp_arch:
        raise Incompatible(
            f"{package.folder} is for HTP v{target.htp_arch} ({target.name})",
            why=f"{device.soc.chip} has v{device.soc.htp_arch}, and code does not run on a lower generation",
            next=f"hexport build … --target {device.soc.chip}",
        )


def _refuse_sdk(package: Package, made: tuple[int, ...], limit: str, whose: str, cure: str) -> None:
    """An unknown limit is none: not every driver tells its version."""
    known = _version(limit)
    if known is not None and made > known:
        raise Incompatible(
            f"{package.folder} was made with QNN SDK {package.manifest.toolchain.qnn_sdk}",
            why=f"it is newer than {limit}, {whose}",
            next=f"{cure}, or build it with an onnxruntime-qnn that has SDK {limit} or older",
        )


def _version(text: str) -> tuple[int, ...] | None:
    """Build numbers do not count: 2.51.0.260929 is 2.51.0."""
    try:
        return facts.parse_version(text)[:3]
    except ValueError:
        return None
