"""Heavy imports are lazy: asking for help must not load what compiles models."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import verified_packages
from core_only import absent_modules, core_distributions, core_environment
from hexport import facts
from made_packages import edit

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


LOAD_AND_RUN = """
import sys
import numpy as np
import hexport

x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype(np.float32)
for backend in ("cpu", "simulator"):
    for isolate in (False, True):
        with hexport.load(sys.argv[1], backend, isolate=isolate, say=lambda _: None) as session:
            y = session.run({"x": x})["y"]
            assert session.run_async({"x": x}).result(60)["y"].tobytes() == y.tobytes()
            assert session.bench(runs=1).median_ms > 0
            served = session.describe().runs
        assert y.shape == (1, 5, 4)
        print(backend, isolate, sorted(served), float(y.sum()))
try:
    import onnx
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.skipif(not facts.simulates_npu(facts.current_platform()), reason="needs the simulator")
def test_load_and_run_need_the_core_only(tmp_path: Path) -> None:
    """On the CPU and the simulator, here and in workers; buckets that share weights are compiled, too."""
    package = verified_packages.build(tmp_path / "package", tmp_path / "work", (8,), share=False)
    shared = verified_packages.build(tmp_path / "shared", tmp_path / "more", (8, 16), share=True)
    sdk = facts.sdk_of(facts.installed_release() or "")
    environment = {**core_environment(tmp_path), "HEXPORT_CACHE": str(tmp_path / "cache")}
    for one in (package, shared):
        edit(one, lambda document: document["toolchain"].update(qnn_sdk=sdk))
        done = subprocess.run(
            [sys.executable, "-c", LOAD_AND_RUN, str(one)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("cpu", "sim"))]
        assert [line[:3] for line in lines] == [
            ["cpu", "False", "['cpu']"],
            ["cpu", "True", "['cpu']"],
            ["simulator", "False", "['seq8']"],
            ["simulator", "True", "['seq8']"],
        ]
        sums = [float(line[3]) for line in lines]
        assert sums[0] == sums[1]
        assert sums[2] == sums[3] == pytest.approx(sums[0], rel=1e-2)
        assert "not of the core" in done.stdout


def test_every_module_of_the_runtime_imports_with_the_core_only(tmp_path: Path) -> None:
    """Also the worker's own, and those that a device with an NPU would reach."""
    rooms = (
        "runtime",
        "packaging",
        "backend",
        "toolchain",
        "facts",
        "storage",
        "diagnosis",
        "cli",
        "onnxruntime",
    )
    root = Path(importlib.util.find_spec("hexport").submodule_search_locations[0])  # type: ignore[union-attr, index]
    names = [
        ".".join(("hexport", *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for room in rooms
        for file in sorted((root / room).rglob("*.py"))
        if "quantization" not in file.parts
    ]
    assert "hexport.runtime.serving" in names
    assert "hexport.backend.jobs" in names
    code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)\nprint('all')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=core_environment(tmp_path),
    )
    assert done.stdout == "all\n", done.stderr


def test_what_counts_as_the_core() -> None:
    assert {"hexport", "numpy", "onnxruntime", "onnxruntime-qnn", "protobuf", "click"} <= core_distributions()
    assert {"onnx", "onnx_ir", "onnxscript", "onnxslim", "PIL", "pytest"} <= absent_modules()
    assert not {"hexport", "numpy", "google", "onnxruntime", "rich"} & absent_modules()


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
