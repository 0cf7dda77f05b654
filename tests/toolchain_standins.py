"""Stand-ins for tests of toolchains: wheels of a few lines in an index on disk, other Pythons, a mute server.

The stand-in provider answers the tiny graph of the verification as the real one does, or wrongly if asked to.
What the real packages do is tested in ``test_toolchain_real.py``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from hexport.environments.record import Toolchain, write_record
from hexport.environments.registry import record_path
from hexport.facts import current_platform
from hexport.model.tiny import ANSWERS_FOR_ONES

PROVIDER, HOST = "2.3.0", "1.26.0"
COMMAND = [sys.executable, "-m", "hexport", "toolchain"]

_ONNXRUNTIME = """
class _Thing:
    def __init__(self, **fields):
        self.__dict__.update(fields)
class SessionOptions:
    def add_session_config_entry(self, key, value): pass
    def add_provider_for_devices(self, devices, options): pass
class InferenceSession:
    def __init__(self, model, options, **where): pass
    def get_providers(self): return ["QNNExecutionProvider", "CPUExecutionProvider"]
    def get_inputs(self): return [_Thing(name="x", shape=[1, 8])]
    def get_provider_graph_assignment_info(self):
        node = _Thing(name="add", op_type="Add", domain="")
        return [_Thing(ep_name="QNNExecutionProvider", get_nodes=lambda: [node])]
    def run(self, names, feeds):
        import numpy
        return [numpy.Array(ANSWERS)]
def set_default_logger_severity(level): pass
def register_execution_provider_library(name, path): pass
def get_ep_devices(): return [_Thing(ep_name="QNNExecutionProvider")]
ANSWERS = {answers}
"""
_PROVIDER = "def get_library_path(): return 'nowhere'\n"
_NUMPY = """
float32 = float
class Array(list):
    def ravel(self): return self
def ones(shape, kind): return Array([1.0] * shape[-1])
"""


def make_index(folder: Path, *, right: bool = True, provider: str = PROVIDER, host: str = HOST) -> Path:
    """A folder of wheels that pip can install from."""
    folder.mkdir(parents=True)
    answers = ANSWERS_FOR_ONES if right else tuple(0.0 for _ in ANSWERS_FOR_ONES)
    _wheel(folder, "numpy", "2.0.0", _NUMPY)
    _wheel(folder, "onnxruntime", host, _ONNXRUNTIME.replace("{answers}", repr(list(answers))), "numpy")
    _wheel(folder, "onnxruntime_qnn", provider, _PROVIDER, "onnxruntime")
    return folder


def _wheel(folder: Path, name: str, version: str, code: str, requires: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    files = {
        f"{name}/__init__.py": code,
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if name == "onnxruntime_qnn":
        files |= {f"{name}/lib{library}.so": "" for library in ("QnnHtp", "QnnSaver", "QnnIr")}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def name_interpreter(
    name: str, python: str = sys.executable, packages: Mapping[str, str] | None = None, **environment: str
) -> Toolchain:
    """A toolchain of an interpreter that is there, without the minutes that verifying it takes."""
    found = {one: metadata.version(one) for one in ("onnxruntime", "onnxruntime-qnn", "numpy")}
    version = ".".join(map(str, sys.version_info[:3]))
    made = Toolchain(
        name, python, version, current_platform(), dict(packages or found), (), environment=environment
    )
    place = record_path(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_record(place, made)
    return made


def settings(data: Path, index: Path | str) -> dict[str, str]:
    """The environment in which pip knows that index and no other."""
    where = (
        {"PIP_INDEX_URL": index}
        if isinstance(index, str)
        else {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    )
    away = dict.fromkeys(("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "HEXPORT_TOOLCHAIN"), "")
    return {**away, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "HEXPORT_DATA": str(data), **where}


def run(*arguments: str, env: Mapping[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    """``hexport toolchain …``, which must end with ``code``."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done


def run_json(*arguments: str, env: Mapping[str, str], code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", env=env, code=code).stdout)
    return document


def other_pythons(oldest: tuple[int, int], newest: tuple[int, int] = (3, 99)) -> list[str]:
    """Interpreters on this machine of other minor versions than this one."""
    found: dict[tuple[int, int], str] = {}
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    for minor in range(6, 20):
        for folder in folders:
            python = folder / f"python3.{minor}"
            # A shim of pyenv starts only what is chosen at the moment.
            if python.is_file() and "shims" not in python.parts:
                found.setdefault((3, minor), str(python))
    return [
        python
        for version, python in sorted(found.items())
        if oldest <= version <= newest and version != sys.version_info[:2]
    ]


@contextmanager
def mute_server() -> Iterator[tuple[str, socket.socket]]:
    """An index that takes connections and never answers: an installation that can be interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(300)  # a machine under load is slow, not wrong
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple", server


def made_folders(data: Path) -> list[Path]:
    """Environments on disk, listed or not."""
    return [path for path in (data / "toolchains").glob("*") if path.is_dir()]
