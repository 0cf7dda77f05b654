"""What is asked of another interpreter before and while it becomes a toolchain. Needs Python itself only."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hexport.toolchain.serving import JobError, serve

_SYSTEMS = {"win": "windows", "macosx": "darwin"}
_ARCHITECTURES = {"windows-amd64": "windows-x86_64", "darwin-arm64": "darwin-aarch64"}


def look(_: dict[str, Any]) -> dict[str, Any]:
    """Version, platform, and every distribution that is installed."""
    from importlib import metadata

    packages: dict[str, dict[str, str]] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            plain = re.sub(r"[-_.]+", "-", name).lower()
            info = str(getattr(distribution, "_path", ""))
            packages.setdefault(plain, {"version": distribution.version, "info": info})
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": _platform(),
        "packages": packages,
        "libraries": _qnn_libraries(),
    }


def make_environment(arguments: dict[str, Any]) -> dict[str, Any]:
    """A virtual environment of this interpreter. It gets no pip of its own if it can be done without."""
    import subprocess

    try:
        import venv

        builder = venv.EnvBuilder(symlinks=sys.platform != "win32", with_pip=_pip_of_python() is None)
        builder.create(arguments["folder"])
    except ImportError as error:
        raise JobError("NoVenv", str(error)) from error
    except subprocess.CalledProcessError as error:
        said = error.output.decode("utf-8", "replace") if error.output else ""
        raise JobError("NoVenv", f"{error}\n{said[-2000:]}") from error
    return {}


def install(arguments: dict[str, Any]) -> dict[str, Any]:
    """Run pip in this very process, so that it ends when hexport does; gives its exit code."""
    import runpy

    if wheel := _pip_of_python():
        sys.path.insert(0, str(wheel))
    sys.argv = ["pip", *arguments["arguments"]]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return {"code": end.code if isinstance(end.code, int) else int(end.code is not None)}
    return {"code": 0}


def _pip_of_python() -> Path | None:
    """The wheel of pip that comes with Python, which can be run as it is; None: it is kept elsewhere.

    Installing it first would take most of the time that an environment takes.
    """
    import ensurepip

    given = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [Path(ensurepip.__file__).parent / "_bundled", *([Path(given)] if given else [])]
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _platform() -> str:
    """In the words of the data files, by what this interpreter was built for, not what emulates it."""
    system, _, rest = sysconfig.get_platform().partition("-")
    if system == "win32":
        return "windows-x86"
    name = f"{_SYSTEMS.get(system, system)}-{rest.rpartition('-')[2]}"
    return _ARCHITECTURES.get(name, name)


def _qnn_libraries() -> list[str]:
    """The QNN libraries of the installed onnxruntime-qnn, without what platforms put around their names."""
    import importlib.util

    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = (re.fullmatch(r"(?:lib)?(Qnn[A-Za-z]+)\.(?:so|dll)", path.name) for path in folder.rglob("*Qnn*"))
    return sorted({match[1] for match in found if match})


if __name__ == "__main__":
    serve({"look": look, "make_environment": make_environment, "install": install})
