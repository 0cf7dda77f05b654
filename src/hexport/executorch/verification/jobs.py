"""Running a saved torch program (``.pt2``) as it is, in eager mode, in the interpreter that has torch.

Runs in a child process.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from hexport.backend.requests import SampleFiles
from hexport.executorch.verification.requests import ProgramReply, ProgramRequest
from hexport.records import from_plain, to_plain
from hexport.toolchain.serving import JobError, serve
from hexport.torch.program_reading import UNREADABLE, read_program


def run_program(arguments: dict[str, Any]) -> dict[str, Any]:
    """Every sample through the program; the results are written in their order."""
    request = from_plain(ProgramRequest, arguments)
    torch = importlib.import_module("torch")
    program, module = _load(request.program)
    started = time.perf_counter()
    for number in range(request.samples.count):
        _run_sample(torch, program, module, request, number)
    plain: dict[str, Any] = to_plain(ProgramReply(time.perf_counter() - started))
    return plain


def _load(path: str) -> tuple[Any, Any]:
    """The program, and what runs it."""
    try:
        program = read_program(Path(path).read_bytes(), quantised=True).program
    except (OSError, *UNREADABLE) as error:
        raise JobError("ProgramUnreadable", str(error)) from error
    try:
        return program, program.module()
    except Exception as error:
        raise JobError("ProgramUnreadable", f"{type(error).__name__}: {error}") from error


def _run_sample(torch: Any, program: Any, module: Any, request: ProgramRequest, number: int) -> None:
    import numpy as np

    pytree = importlib.import_module("torch.utils._pytree")
    args, kwargs = _inputs(torch, pytree, program, _arrays(request.samples, number))
    try:
        with torch.no_grad():
            results = module(*args, **kwargs)
    except Exception as error:
        raise JobError("ProgramFailed", f"sample {number}: {type(error).__name__}: {error}") from error
    found = [one for one in pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]
    if len(found) != request.outputs:
        raise JobError("ProgramMisfit", f"it gives {len(found)} tensors, and the .pte {request.outputs}")
    arrays = [(one.float() if one.dtype == torch.bfloat16 else one).detach().contiguous() for one in found]
    np.savez(Path(request.samples.outputs) / f"{number}.npz", *(one.numpy() for one in arrays))


def _arrays(samples: SampleFiles, number: int) -> list[Any]:
    import numpy as np

    with np.load(Path(samples.inputs) / f"{number}.npz", allow_pickle=False) as arrays:
        return [arrays[f"arr_{i}"] for i in range(len(samples.input_names))]


def _inputs(torch: Any, pytree: Any, program: Any, arrays: list[Any]) -> tuple[Any, Any]:
    """The arrays in the places of the tensors that the program was exported with."""
    given = [torch.from_numpy(array) for array in arrays]
    if program.example_inputs is None:
        return tuple(given), {}
    leaves, shape = pytree.tree_flatten(program.example_inputs)
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if len(places) != len(given):
        raise JobError("ProgramMisfit", f"it takes {len(places)} tensors, and the .pte {len(given)}")
    for place, tensor in zip(places, given, strict=True):
        leaves[place] = _fitted(leaves[place], tensor)
    args, kwargs = pytree.tree_unflatten(leaves, shape)
    return args, kwargs


def _fitted(example: Any, tensor: Any) -> Any:
    """Whole numbers may be of another size; anything else is another model."""
    if example.dtype == tensor.dtype:
        return tensor
    if example.dtype.is_floating_point or tensor.dtype.is_floating_point:
        raise JobError("ProgramMisfit", f"it takes {example.dtype} where the .pte takes {tensor.dtype}")
    return tensor.to(example.dtype)


if __name__ == "__main__":
    serve({"run_program": run_program})
