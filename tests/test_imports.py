"""Heavy imports are lazy: asking for help must not load what compiles models."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

HEAVY = {
    "onnx",
    "onnxruntime",
    "onnxruntime_qnn",
    "onnx_ir",
    "onnxscript",
    "numpy",
    "google.protobuf",
    "PIL",
    "torch",
}


def loaded(code: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after ``code``."""
    script = f"import sys, json\n{code}\nsys.stderr.write(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


def run_verb(*arguments: str) -> str:
    return (
        f"sys.argv = ['hexport', *{list(arguments)!r}]\n"
        "from hexport.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )


def test_import_hexport_is_light() -> None:
    modules = loaded("import hexport")
    assert not modules & (HEAVY | {"click", "rich"})
    assert "hexport.errors" in modules


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("check", "--help"),
        ("targets", "--help"),
        ("zoo", "--help"),
        ("doctor", "--help"),
    ],
)
def test_help_is_light(arguments: tuple[str, ...]) -> None:
    assert not loaded(run_verb(*arguments)) & HEAVY


def test_lists_are_light() -> None:
    assert not loaded(run_verb("targets", "--json")) & HEAVY
    assert not loaded(run_verb("zoo", "list", "--json")) & HEAVY


def test_check_leaves_onnxruntime_to_the_worker(tmp_path: object) -> None:
    """The parent never loads native inference code, not even to check a model."""
    modules = loaded(
        "import hexport\n"
        "try:\n    hexport.check('does-not-exist.onnx', target='SM8650')\n"
        "except hexport.HexportError:\n    pass\n"
        "import hexport.observe.check, hexport.backend.probe"
    )
    assert not modules & {"onnx", "onnxruntime", "onnxruntime_qnn"}


def test_the_probe_can_fail() -> None:
    """The instrument itself: a heavy import is seen."""
    assert "numpy" in loaded("import numpy")


def test_every_public_name_is_there() -> None:
    import hexport

    for name in hexport.__all__:
        assert getattr(hexport, name) is not None
        # No room may have the name of a verb: importing it would put the module in the function's place.
        assert importlib.util.find_spec(f"hexport.{name}") is None
        assert getattr(hexport, name) is getattr(hexport, name)
    with pytest.raises(AttributeError, match="nonsense"):
        hexport.nonsense  # noqa: B018 - the access is the test
