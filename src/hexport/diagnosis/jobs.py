"""The doctor's own worker jobs: what needs a native library, but no session."""

from __future__ import annotations

import ctypes
from typing import Any

from hexport.diagnosis.installed import module_origin
from hexport.toolchain.serving import JobError, serve


def locate_module(_: dict[str, Any]) -> dict[str, Any]:
    """Which file ``import onnxruntime`` loads in a worker."""
    return {"origin": module_origin()}


def open_system_library(arguments: dict[str, Any]) -> dict[str, Any]:
    """Load the library that reads context binaries, and call its one exported function."""
    library = ctypes.CDLL(arguments["path"])
    providers, count = ctypes.c_void_p(), ctypes.c_uint32(0)
    result = library.QnnSystemInterface_getProviders(ctypes.byref(providers), ctypes.byref(count))
    if result != 0 or count.value == 0:
        raise JobError("SystemLibrary", f"getProviders gave {result} and {count.value} interfaces")
    return {"interfaces": count.value}


if __name__ == "__main__":
    serve({"locate_module": locate_module, "open_system_library": open_system_library})
