"""onnx-ir is imported without sympy, and reckons with named dims all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _printed(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


_FIRST = (
    "import sys; from hexport.cli.without_sympy import import_onnx_ir; import_onnx_ir(); "
    "import onnx_ir as ir; "
)


def test_a_command_that_quantises_does_not_import_sympy() -> None:
    assert _printed(_FIRST + "import hexport.quantization.verb; print('sympy' in sys.modules)") == "False"


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
