"""The OpenCL drivers of this machine, by which Qualcomm's GPU backend reaches an Adreno."""

from __future__ import annotations

import ctypes.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OpenCl:
    """The loader library and the drivers registered with it; empty when there are none."""

    loader: str = ""
    drivers: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.loader and not self.drivers:
            return "no OpenCL driver is installed"
        drivers = ", ".join(self.drivers) or "none registered"
        return f"OpenCL loader {self.loader or 'missing'}, drivers: {drivers}"


def look_for_opencl(vendors: Path = Path("/etc/OpenCL/vendors")) -> OpenCl:
    """Without loading any of it."""
    drivers: list[str] = []
    for file in sorted(vendors.glob("*.icd")):
        try:
            drivers.append(Path(file.read_text("utf-8", errors="replace").strip()).name or file.stem)
        except OSError:
            drivers.append(file.stem)
    return OpenCl(ctypes.util.find_library("OpenCL") or "", tuple(drivers))
