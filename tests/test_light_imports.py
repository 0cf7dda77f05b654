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


@pytest.mark.parametrize(
    "module", ["sympy", "onnx.reference.op_run", "onnxscript.onnx_opset", "rich", "hexport.observe.check"]
)
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


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import onnxscript; print(onnxscript.ir.Model.__name__)", "Model"),
        ("import onnxscript; print(onnxscript.__version__[:2])", "0."),
        ("import onnxscript; print(onnxscript.opset18.version)", "18"),
        ("from onnxscript import opset18, rewriter; print(opset18.version)", "18"),
        ("from onnxscript import *; print(script.__name__)", "script"),
        ("from onnxscript import optimizer; print(optimizer.optimize.__name__)", "optimize"),
        ("import onnxscript; print(onnxscript.__loader__ is onnxscript.__spec__.loader)", "True"),
        ("import onnxscript; print(hasattr(onnxscript, 'nothing'))", "False"),
    ],
)
def test_all_of_onnxscript_is_there(code: str, printed: str) -> None:
    assert _printed(_FIRST + "import onnxscript.rewriter; " + code) == printed


def test_importing_onnx_waits_for_who_needs_it() -> None:
    code = _FIRST.replace("import onnx_ir as ir; ", "") + "import hexport.building.verb; "
    assert _printed(code + "print([m for m in ('onnx', 'onnx_ir') if m in sys.modules])") == "[]"


_GATHERED = (
    "import gc; from hexport.cli.model_options import build_parts; {before}\n"
    "with build_parts('quantize'):\n    import onnx_ir; inside = gc.isenabled()\n"
    "print(inside, gc.isenabled(), gc.get_freeze_count() > 10000)"
)


def test_the_collector_passes_over_what_was_imported() -> None:
    assert _printed(_GATHERED.format(before="")) == "False True True"


def test_the_collector_of_a_program_that_has_them_already_is_left_alone() -> None:
    assert _printed(_GATHERED.format(before="import onnx_ir")) == "True True False"


def test_counting_what_tensors_hold_does_not_import_another_generator() -> None:
    code = (
        "import sys; import numpy as np; from hexport.quantization.histogram import Histogram; "
        "seen = Histogram(); seen.add(np.zeros(100_000, np.float32)); "
        "print(seen.total, 'numpy.random' in sys.modules)"
    )
    assert _printed(code) == "98304 False"
