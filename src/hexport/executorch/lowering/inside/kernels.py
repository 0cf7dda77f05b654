"""Whether ExecuTorch has kernels for what stays on the CPU. Without one a file cannot be loaded anywhere."""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.stack import stack

_BROUGHT = ("quantized_decomposed::",)
"""Kernels in a library of the wheel that is loaded when a file needs it."""


def missing_kernels(made: Any) -> tuple[str, ...]:
    """Operators of the file, as ``aten::median.dim_values``, that this executorch cannot compute."""
    known = set(stack().runtime.Runtime.get().operator_registry.operator_names)
    wanted = {
        _full(operator) for plan in made.executorch_program.execution_plan for operator in plan.operators
    }
    return tuple(sorted(name for name in wanted - known if not name.startswith(_BROUGHT)))


def _full(operator: Any) -> str:
    return f"{operator.name}.{operator.overload}" if operator.overload else str(operator.name)
