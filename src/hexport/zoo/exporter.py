"""ONNX files of models that are published as torch checkpoints, exported once in an environment of its own.

torch is heavy, so it is installed into the cache, never into the user's environment. What an export
is made from (checkpoint, definition, versions, our script) names its folder; the file counts only
after ONNX Runtime has given torch's own answer.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.storage.locking import exclusive
from hexport.zoo import cache
from hexport.zoo.catalogue import Entry, assets
from hexport.zoo.errors import ZooExportFailed, ZooUnavailable
from hexport.zoo.fetch import digest, ensure, fresh_part, intact, last_lines, run_pip

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIREMENTS = ("torch==2.13.0", "onnx==1.23.2", "onnxscript==0.7.2", "numpy==2.4.6", "safetensors==0.8.0")
TOLERANCE = 1e-4
"""Largest difference from torch, against the largest value of the output; fp32 rounding gives about 1e-6."""
_SCRIPT = Path(__file__).with_name("export_torch.py")
_EXPORT_SECONDS = 900
# Definitions that a checkpoint needs: the asset group, and the package it is imported as.
_CODE = {"efficientnet-lite0": ("efficientnet-code", "efficientnet_lite_pytorch")}


def export(entry: Entry, say: Callable[[str], None]) -> Path:
    """The ONNX file of a checkpoint, made now if it is not in the cache."""
    model = place_of_export(entry)
    folder = model.parent
    if _intact(folder, entry):
        return model
    lock = cache.root() / "locks" / f"export-{entry.name}.lock"
    with exclusive(lock, lambda: say(f"zoo: another process is exporting {entry.name}; waiting for it")):
        if not _intact(folder, entry):
            if folder.exists():
                say(f"zoo: {folder} was altered on disk; exporting again")
            _export(entry, folder, say)
    return model


def place_of_export(entry: Entry) -> Path:
    """Where the export of a checkpoint is, or would be."""
    return _model(cache.root() / "exports" / f"{entry.name}-{_key(entry)}", entry)


def _key(entry: Entry) -> str:
    parts = [entry.source.sha256, *REQUIREMENTS, digest(_SCRIPT)]
    if entry.name in _CODE:
        parts += [m.sha256 for m in assets(_CODE[entry.name][0])]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _model(folder: Path, entry: Entry) -> Path:
    return folder / f"{entry.name}.onnx"


def _intact(folder: Path, entry: Entry) -> bool:
    try:
        sha256 = json.loads((folder / "export.json").read_bytes())["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return isinstance(sha256, str) and intact(_model(folder, entry), sha256)


def _export(entry: Entry, folder: Path, say: Callable[[str], None]) -> None:
    (checkpoint,) = ensure([entry.source], say)
    python = environment(say)
    say(f"zoo: exporting {entry.name} from {entry.source.file} with {REQUIREMENTS[0]}")
    part = fresh_part(folder)
    try:
        started = time.monotonic()
        arguments = [entry.name, str(checkpoint), str(part), *_definition(entry, part, say)]
        _run(entry, [str(python), "-I", str(_SCRIPT), *arguments])
        difference = _compare(entry, part)
        _record(entry, part, difference, time.monotonic() - started)
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _definition(entry: Entry, part: Path, say: Callable[[str], None]) -> list[str]:
    """The folder to import the model's own code from, if it has any."""
    if entry.name not in _CODE:
        return []
    group, package = _CODE[entry.name]
    target = part / "code" / package
    target.mkdir(parents=True)
    for path in ensure(assets(group), say):
        shutil.copy(path, target)
    return [str(target.parent)]


def _run(entry: Entry, command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_EXPORT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ZooExportFailed(
            f"exporting {entry.name} took longer than {_EXPORT_SECONDS} s",
            next="try again on a calmer machine",
        ) from error
    if done.returncode != 0:
        raise ZooExportFailed(
            f"{entry.name} could not be exported to ONNX",
            why=f"the exporter ended with {done.returncode}:\n{last_lines(done.stderr, 12)}",
            next=f"remove {environment_folder()} to have its environment made anew, and try again",
        )


def _compare(entry: Entry, part: Path) -> float:
    """The largest difference between ONNX Runtime and torch on the exporter's example."""
    import numpy as np

    from hexport.model.reference import cpu_session

    with np.load(part / "check.npz", allow_pickle=False) as tensors:
        session = cpu_session(part / "model.onnx")
        feed = {key[3:]: tensors[key] for key in tensors.files if key.startswith("in:")}
        expected = [tensors[f"out:{output.name}"] for output in session.get_outputs()]
    answers = session.run(None, feed)
    pairs = zip(answers, expected, strict=True)
    worst = max(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs)
    if not worst <= TOLERANCE:
        raise ZooExportFailed(
            f"the export of {entry.name} does not answer as torch does",
            why=f"largest difference {worst:.2g} of the output's range, allowed {TOLERANCE:g}",
            next="please report this with your platform and `hexport doctor --json`",
        )
    return worst


def _record(entry: Entry, part: Path, difference: float, seconds: float) -> None:
    model = _model(part, entry)
    (part / "model.onnx").replace(model)
    (part / "check.npz").unlink()
    shutil.rmtree(part / "code", ignore_errors=True)
    record = {
        "schema_version": 1,
        "model": entry.name,
        "checkpoint_sha256": entry.source.sha256,
        "requirements": REQUIREMENTS,
        "difference_from_torch": difference,
        "seconds": round(seconds, 1),
        "sha256": digest(model),
    }
    (part / "export.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def environment_folder() -> Path:
    key = hashlib.sha256("\n".join(REQUIREMENTS).encode()).hexdigest()[:8]
    return cache.root() / f"exporter-{key}"


def environment(say: Callable[[str], None]) -> Path:
    """The Python that has torch. Made in place, since an environment does not move; ``ready`` comes last."""
    folder = environment_folder()
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = folder / "ready"
    lock = cache.root() / "locks" / "exporter.lock"
    with exclusive(lock, lambda: say("zoo: another process is installing the exporter; waiting for it")):
        if ready.exists() and python.exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        say(f"zoo: installing torch into {folder} to export with: about 1 GB and a minute or more, once")
        _make(folder, python)
        ready.touch()
    return python


def _make(folder: Path, python: Path) -> None:
    command = [sys.executable, "-m", "venv", str(folder)]
    venv = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if venv.returncode != 0:
        raise ZooExportFailed(
            f"no environment could be made in {folder}",
            why=last_lines(venv.stderr or venv.stdout),
            next="this Python lacks venv or ensurepip; some systems package them as python3-venv",
        )
    pip = run_pip(str(python), "install", *REQUIREMENTS)
    if pip.returncode != 0:
        raise ZooUnavailable(
            f"{', '.join(REQUIREMENTS)} could not be installed",
            why=f"pip ended with {pip.returncode}:\n{last_lines(pip.stderr or pip.stdout)}",
            next="check the network and pip's index settings, then try again",
        )
