"""ExecuTorch's proof, in its own interpreter: a module is lowered for the NPU and run in the simulator."""

from __future__ import annotations

import importlib
from typing import Any

from hexport.toolchain.serving import JobError, serve

_CHIP = "SM8650"
_TOLERANCE = 1e-2
"""fp16 on values up to 3 errs by 2e-3."""


def lower_and_run(_: dict[str, Any]) -> dict[str, Any]:
    """Relu(x + c) in fp16, compared with torch."""
    # By name, in this order: executorch's extensions must be loaded before libQnnHtp is.
    runtime = importlib.import_module("executorch.runtime")
    torch = importlib.import_module("torch")
    addends = torch.tensor([[-3.0, -1.5, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0]])

    class Tiny(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.relu(x + addends)

    inputs = (torch.ones(1, 8),)
    buffer = _lower(Tiny().eval(), inputs)
    program = runtime.Runtime.get().load_program(buffer)
    (got,) = program.load_method("forward").execute(list(inputs))
    worst = float((got - Tiny()(*inputs)).abs().max())
    if not worst <= _TOLERANCE:
        raise JobError("ExecutorchWrong", f"the result is off by {worst:g}")
    return {"worst": worst}


def _lower(module: Any, inputs: tuple[Any, ...]) -> bytes:
    schema = importlib.import_module("executorch.backends.qualcomm.serialization.qc_schema")
    tools = importlib.import_module("executorch.backends.qualcomm.utils.utils")
    spec = tools.generate_qnn_executorch_compiler_spec(
        soc_model=getattr(schema.QcomChipset, _CHIP),
        backend_options=tools.generate_htp_compiler_spec(use_fp16=True),
    )
    lowered = tools.to_edge_transform_and_lower_to_qnn(module, inputs, spec)
    data: bytes = lowered.to_executorch().buffer
    return data


if __name__ == "__main__":
    serve({"lower_and_run": lower_and_run})
