"""The interpreter that lowers: the toolchain's, with its own QNN libraries or those of the user's SDK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hexport.executorch.lowering.failures import SdkUnusable
from hexport.executorch.lowering.requests import MODULE, QuantizeRequest
from hexport.executorch.pte.toolchain import find_executorch
from hexport.records import to_plain
from hexport.storage.temporary import temporary_folder
from hexport.toolchain import Interpreter, JobFailed, Limits, Worker, WorkerCrashed

LIBRARIES = Path("lib") / "x86_64-linux-clang"
_NEEDED = ("libQnnHtp.so", "libQnnSystem.so")
_TRAP = "14001"


def lowering_interpreter(toolchain: str | None, sdk: Path | None) -> Interpreter:
    """With ``sdk`` in the place of the libraries that the toolchain brings."""
    interpreter = find_executorch(toolchain)
    if sdk is None:
        return interpreter
    folder = sdk / LIBRARIES
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        raise SdkUnusable(
            f"{sdk} is no QNN SDK",
            why=f"there is no {folder / missing[0]}",
            next="name the folder that holds lib/, of an SDK for Linux on x86_64; or leave --qnn-sdk out",
        )
    return replace(
        interpreter,
        environment={**interpreter.environment, "QNN_SDK_ROOT": str(sdk), "LD_LIBRARY_PATH": str(folder)},
    )


def qnn_title(interpreter: Interpreter, sdk: Path | None) -> str:
    """Whose libraries compile."""
    if sdk is not None:
        return f"the SDK in {sdk}"
    return f"onnxruntime-qnn {interpreter.packages.get('onnxruntime-qnn', '')}".strip()


def try_sdk(interpreter: Interpreter, sdk: Path, request: QuantizeRequest, limits: Limits | None) -> None:
    """Have it make a device, in a worker of its own: versions that ExecuTorch was not made for fail there."""
    with temporary_folder() as folder:
        log = folder / "native.log"
        try:
            with Worker(MODULE, log, limits=limits, python=interpreter) as worker:
                worker.call("try_device", to_plain(request))
        except (JobFailed, WorkerCrashed) as error:
            if isinstance(error, JobFailed) and error.kind != "SdkUnusable":
                raise
            said = log.read_text("utf-8", "replace") if log.exists() else ""
            raise SdkUnusable(
                f"ExecuTorch {interpreter.packages['executorch']} does not work with the QNN SDK in {sdk}",
                why=_why(said, error.why),
                next="leave --qnn-sdk out: the toolchain brings libraries that it works with",
            ) from error


def _why(said: str, otherwise: str) -> str:
    if _TRAP in said:
        return (
            "making a device fails with 14001: ExecuTorch was built for a QNN whose device configuration "
            "had another layout"
        )
    return otherwise
