"""Packages made for tests: real in every field, with files of any content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hexport.packaging import Manifest, artefact, package_aside, write_manifest
from hexport.packaging import manifest as m

FILES = {
    "SM8650/model_ctx.onnx": (m.CONTEXT_MODEL, b"a wrapper"),
    "SM8650/model_ctx_qnn.bin": (m.CONTEXT_BINARY, bytes(range(256)) * 64),
    "cpu/model.onnx": (m.CPU_MODEL, b"a model"),
    "report.json": (m.REPORT, b"{}\n"),
}
CHIP = m.Target("SM8650", 57, 75, load_options={"soc_model": "57"})
BUCKET = m.Bucket("seq=64", {"seq": 64}, {"ids": (1, 64)}, {"y": (1, 64, 8)})


def manifest(folder: Path | None = None, **changes: Any) -> Manifest:
    """A manifest of the files that are in ``folder``."""
    files = () if folder is None else tuple(_entry(folder, name, role) for name, (role, _) in FILES.items())
    made = Manifest(
        source=m.Source("model.onnx", 7, hashlib.sha256(b"a model").hexdigest()),
        scheme="16a8w",
        contract=m.Contract(
            inputs=(m.Tensor("ids", "int64", (1, "seq")),),
            outputs=(m.Tensor("y", "float32", (1, "seq", 8)),),
            frozen=(m.FrozenInput("sr", "int64", (), (16000,)),),
            padding=(m.Padding("ids", 1, 0),),
            crops=(m.Crop("y", 1, "seq"),),
        ),
        targets=(CHIP,),
        buckets=(BUCKET,),
        artefacts=files,
        verification=(
            m.Verification(
                "SM8650", "seq=64", "simulator", 4, 30.0, True, (m.OutputFigure("y", 41.5, 0.01),)
            ),
        ),
        toolchain=m.Toolchain("0.1", "1.31.1", "2.7.0", "2.51.0"),
        command=("hexport", "build", "model.onnx", "-o", "pkg"),
    )
    return dataclasses.replace(made, **changes)


def _entry(folder: Path, name: str, role: str) -> m.Artefact:
    bound = {"targets": ["SM8650"], "buckets": ["seq=64"]} if name.startswith("SM8650") else {}
    return artefact(folder, name, role, **bound)


def fill(folder: Path, **contents: bytes) -> None:
    for name, (_, content) in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(contents.get(Path(name).stem, content))
    write_manifest(folder, manifest(folder))


def build(output: Path, **contents: bytes) -> Path:
    """A package; ``model_ctx_qnn=b"…"`` and the like replace the content of one file."""
    with package_aside(output) as folder:
        fill(folder, **contents)
    return output


def edit(package: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who has only a text editor."""
    path = package / m.MANIFEST
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")
