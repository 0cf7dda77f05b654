"""Real packages for tests: a small model with a dynamic dim and a frozen input, really compiled."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from hexport.compiling.verb import compile_models
from hexport.packaging import Manifest, artefact, package_aside, write_manifest
from hexport.packaging import manifest as m
from small_models import constant, model, value

CHIP = m.Target("SM8650", 57, 75)
GAIN = 2.0
WEIGHT = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def rows(seq: int | str, *, frozen: bool = False) -> onnx.ModelProto:
    """x[1,seq,8] · w · gain → y[1,seq,4]: rows do not see each other, so that padding changes none."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Mul", ["a", "gain"], ["y"], name="scaled"),
    ]
    inputs, weights = [value("x", [1, seq, 8])], [constant("w", WEIGHT)]
    if frozen:
        weights.append(constant("gain", np.array(GAIN, np.float32)))
    else:
        inputs.append(value("gain", []))
    return model(nodes, inputs, [value("y", [1, seq, 4])], weights)


def saved(proto: onnx.ModelProto, path: Path) -> Path:
    onnx.save(proto, path)
    return path


def expected(x: np.ndarray, gain: float = GAIN) -> np.ndarray:
    return x @ WEIGHT * np.float32(gain)


def build(output: Path, work: Path, sizes: Sequence[int], *, share: bool, sources: bool = True) -> Path:
    """A package of the model at ``sizes``, as ``hexport build`` would write it."""
    work.mkdir()
    models = [saved(rows(size, frozen=True), work / f"seq{size}.onnx") for size in sizes]
    (work / "out").mkdir()
    made = compile_models(models, ["SM8650"], work / "out", share_weights=share)
    with package_aside(output) as folder:
        (folder / "SM8650").mkdir()
        (folder / "models").mkdir()
        files = []
        for one in made.artefacts:
            names = [Path(compiled.source).stem for compiled in one.models]
            for compiled, name in zip(one.models, names, strict=True):
                shutil.copy(compiled.path, folder / "SM8650")
                bound = {"targets": ["SM8650"], "buckets": [name], "graphs": compiled.graphs}
                files.append(artefact(folder, f"SM8650/{compiled.path.name}", m.CONTEXT_MODEL, **bound))
            assert one.binary is not None
            shutil.copy(one.binary, folder / "SM8650")
            graphs = [graph.name for graph in one.contexts[0].graphs]
            bound = {"targets": ["SM8650"], "buckets": [] if share else names, "graphs": graphs}
            files.append(artefact(folder, f"SM8650/{one.binary.name}", m.CONTEXT_BINARY, **bound))
        saved(rows("seq"), folder / "models" / "cpu.onnx")
        files.append(artefact(folder, "models/cpu.onnx", m.CPU_MODEL))
        for path in models if sources else ():
            shutil.copy(path, folder / "models")
            bound = {"targets": ["SM8650"], "buckets": [path.stem]}
            files.append(artefact(folder, f"models/{path.name}", m.SOURCE_MODEL, **bound))
        write_manifest(folder, _manifest(sizes, files))
    return output


def _manifest(sizes: Sequence[int], files: Sequence[m.Artefact]) -> Manifest:
    return Manifest(
        source=m.Source("rows.onnx", 1, hashlib.sha256(b"").hexdigest()),
        scheme="fp16",
        contract=m.Contract(
            inputs=(m.Tensor("x", "float32", (1, "seq", 8)),),
            outputs=(m.Tensor("y", "float32", (1, "seq", 4)),),
            frozen=(m.FrozenInput("gain", "float32", (), (GAIN,)),),
            padding=(m.Padding("x", 1, 7.0),),
            crops=(m.Crop("y", 1, "seq"),),
        ),
        targets=(CHIP,),
        buckets=tuple(
            m.Bucket(f"seq{size}", {"seq": size}, {"x": (1, size, 8)}, {"y": (1, size, 4)}) for size in sizes
        ),
        artefacts=tuple(files),
        verification=(
            m.Verification(
                "SM8650", f"seq{sizes[0]}", "simulator", 1, 45.0, True, (m.OutputFigure("y", 60.0, 0.01),)
            ),
        ),
        toolchain=m.Toolchain("0.1", "1", "2", "3"),
        command=("hexport", "build"),
    )
