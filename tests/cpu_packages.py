"""Packages for the CPU alone: one model, nothing compiled."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx

from hexport.packaging import Manifest, artefact, package_aside, write_manifest
from hexport.packaging import manifest as m
from small_models import save


def cpu_package(model: onnx.ModelProto, contract: m.Contract, output: Path) -> Path:
    """``model`` under its contract."""
    with package_aside(output) as folder:
        (folder / "models").mkdir()
        save(model, folder / "models/cpu.onnx")
        write_manifest(
            folder,
            Manifest(
                source=m.Source("m.onnx", 1, hashlib.sha256(b"").hexdigest()),
                scheme="fp32",
                contract=contract,
                targets=(),
                buckets=(),
                artefacts=(artefact(folder, "models/cpu.onnx", m.CPU_MODEL),),
                verification=(),
                toolchain=m.Toolchain("", "", "", ""),
                command=(),
            ),
        )
    return output
