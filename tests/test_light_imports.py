"""onnx-ir and onnxscript are imported without sympy and ONNX's reference, and work all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _printed(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


_FIRST = (
    "import sys; from hexport.cli.light_imports import import_lightly; import_lightly(); "
    "import onnx_ir as ir; "
)


@pytest.mark.parametrize("module", ["sympy", "onnx.reference.op_run"])
def test_a_command_that_quantises_does_not_import_them(module: str) -> None:
    code = f"import hexport.quantization.verb; print({module!r} in sys.modules)"
    assert _printed(_FIRST + code) == "False"


@pytest.mark.parametrize(
    ("dim", "value"),
    [
        ("ir.SymbolicDim('n') + 1", 8),
        ("ir.SymbolicDim('max(n, 3) * 2')", 14),
        ("ir.SymbolicDim('floor(n / 2)')", 3),
        ("ir.SymbolicDim('n') % 4", 3),
        ("ir.SymbolicDim(__import__('sympy').Symbol('n') + 2)", 9),
    ],
)
def test_dims_are_reckoned_with(dim: str, value: int) -> None:
    assert int(_printed(_FIRST + f"print(({dim}).evaluate({{'n': 7}}))")) == value


def test_others_get_the_real_one() -> None:
    assert (
        _printed(_FIRST + "from sympy.core import Symbol; import sympy; print(sympy.sympify('2+3'))") == "5"
    )


@pytest.mark.parametrize(
    "code",
    [
        "import onnx; print(onnx.reference.ops.load_op('', 'Add', 14).__name__)",
        "from onnx.reference.ops import load_op; print(load_op('', 'Add', 14).__name__)",
        "import onnx.reference.op_run; print(onnx.reference.ops.load_op('', 'Add', 14).__name__)",
        "from onnx.reference import ReferenceEvaluator, ops; print(ops.load_op('', 'Add', 14).__name__)",
    ],
)
def test_the_reference_comes_when_it_is_asked_for(code: str) -> None:
    assert _printed(_FIRST + "import onnxscript.optimizer; " + code) == "Add"
