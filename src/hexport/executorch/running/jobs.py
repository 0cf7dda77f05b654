"""Running a ``.pte`` with ExecuTorch's runtime, in the interpreter that has it.

Runs in a child process. The order of imports matters: what executorch loads must be there before libQnnHtp
is, which the first method with a part for the NPU brings along; the other way round the process crashes.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from pathlib import Path
from typing import Any

from hexport.backend.requests import SampleFiles
from hexport.executorch.running.requests import PteRunReply, PteRunRequest
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve

_WARM_UP = 3


def run_pte(arguments: dict[str, Any]) -> dict[str, Any]:
    """One method, run on every sample."""
    request = from_plain(PteRunRequest, arguments)
    importlib.import_module("numpy")
    torch = importlib.import_module("torch")
    runtime = _runtime()
    _refuse_missing(runtime, request)
    started = time.perf_counter()
    try:
        program = runtime._load_program(request.pte)
        method = program.load_method(request.method)
    except RuntimeError as error:
        raise JobError("PteNotLoaded", str(error)) from error
    loaded = time.perf_counter()
    times = [
        _run_sample(torch, method, request.samples, number, request.orders)
        for number in range(request.samples.count)
    ]
    measured: list[float] = []
    if request.measured_runs and times:
        for _ in range(min(_WARM_UP, request.measured_runs)):
            _run_sample(torch, method, request.samples, 0, request.orders)
        measured = [
            _run_sample(torch, method, request.samples, 0, request.orders)
            for _ in range(request.measured_runs)
        ]
    reply = PteRunReply(loaded - started, times[0] if times else 0.0, tuple(measured), _memory())
    plain: dict[str, Any] = to_plain(reply)
    return plain


def _runtime() -> Any:
    """ExecuTorch's runtime itself: its Python face imports all of its compiler first, four times as long."""
    try:
        return importlib.import_module("executorch.extension.pybindings._C")
    except ModuleNotFoundError:
        return importlib.import_module("executorch.extension.pybindings.portable_lib")


def _refuse_missing(runtime: Any, request: PteRunRequest) -> None:
    known = set(runtime._get_registered_backend_names())
    if missing := [name for name in request.backends if name not in known]:
        raise JobError("BackendMissing", f"{missing[0]}; there is: {', '.join(sorted(known))}")
    if _missing_operators(runtime, request):
        _load_more_kernels(runtime)
    if missing := _missing_operators(runtime, request):
        raise JobError("OperatorMissing", ", ".join(missing))


def _missing_operators(runtime: Any, request: PteRunRequest) -> list[str]:
    known = set(runtime._get_operator_names())
    return [name for name in request.operators if name not in known]


def _load_more_kernels(runtime: Any) -> None:
    """Those that quantise, which the wheel brings and nobody loads: a quantised model with a node on the
    CPU could not be run without them. They register themselves."""
    for library in sorted((Path(runtime.__file__).parents[2] / "lib").glob("*executorch_kernels_quantized*")):
        ctypes.CDLL(str(library))


def _run_sample(
    torch: Any, method: Any, samples: SampleFiles, number: int, orders: tuple[tuple[int, ...], ...]
) -> float:
    """Write what comes out; gives the seconds that the method took."""
    import numpy as np

    with np.load(Path(samples.inputs) / f"{number}.npz", allow_pickle=False) as arrays:
        given = [torch.from_numpy(arrays[f"arr_{i}"]) for i in range(len(samples.input_names))]
    given = [_laid_out(tensor, order) for tensor, order in zip(given, orders, strict=True)]
    started = time.perf_counter()
    try:
        results = method(given)
    except RuntimeError as error:
        raise JobError("PteRunFailed", f"sample {number}: {error}") from error
    seconds = time.perf_counter() - started
    np.savez(Path(samples.outputs) / f"{number}.npz", *(_array(torch, one) for one in results))
    return seconds


def _laid_out(tensor: Any, order: tuple[int, ...]) -> Any:
    """Its axes in memory as the program wants them: ExecuTorch takes the bytes in whatever order they are."""
    if len(order) != tensor.dim() or list(order) == sorted(order):
        return tensor.contiguous()
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


def _array(torch: Any, value: Any) -> Any:
    import numpy as np

    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    # numpy has no bfloat16; float32 holds all of it.
    value = value.float() if value.dtype == torch.bfloat16 else value
    return value.detach().contiguous().numpy()


def _memory() -> int | None:
    if sys.platform != "linux":
        return None
    import os

    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    serve({"run_pte": run_pte})
