"""The doctor's worker: the backend's own session job, in a folder where its droppings do no harm.

Saver writes ``saver_output`` and IR a ``.dlc`` file into the current folder, with no option against it.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from hexport.backend.jobs import create_session
from hexport.doctor.installed import module_origin
from hexport.toolchain.serving import JobError, serve


def create_session_beside_model(arguments: dict[str, Any]) -> dict[str, Any]:
    """``create_session`` with the model's folder as the current one."""
    os.chdir(Path(arguments["model"]).parent)
    return create_session(arguments)


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
    serve(
        {
            "create_session": create_session_beside_model,
            "locate_module": locate_module,
            "open_system_library": open_system_library,
        }
    )
