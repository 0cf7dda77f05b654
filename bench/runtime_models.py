"""Small packages for ``runtime.py``: so small that what is measured is not the model."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import hexport
from hexport.packaging import Manifest, artefact, package_aside, write_manifest
from hexport.packaging import manifest as m
from hexport.runtime.session import Session

TARGET = "SM8650"
SHAPE = (1, 8, 8)


def product(path: Path) -> Path:
    """x · w: next to no work."""
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.ravel())]
    _save(path, nodes, list(SHAPE), weights)
    return path


def _save(path: Path, nodes: list[Any], shape: list[Any], weights: list[Any]) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def built(model: Path, folder: Path) -> Path:
    hexport.build(model, output=folder / "package", targets=[TARGET], scheme="fp16")
    return folder / "package"


def zoo_package(folder: Path, name: str) -> Path:
    """Of a zoo model, with a binary for each bucket, which the simulator can load; built once a run."""
    package = folder / f"{name}-package"
    if not package.is_dir():
        hexport.build(f"zoo:{name}", output=package, targets=[TARGET], scheme="fp16", share_weights=False)
    return package


def ones(session: Session) -> dict[str, Any]:
    """Inputs of the first bucket's sizes."""
    dtypes = {tensor.name: tensor.dtype for tensor in session.contract.inputs}
    return {
        name: np.ones(shape, dtypes[name]) for name, shape in session.known_buckets[0].input_shapes.items()
    }


def cpu_package(folder: Path, steps: int = 0) -> Path:
    """y = Relu(x) of any length, for the CPU alone: what is measured is the way there and back.

    ``steps`` of sines before it make it work: sin(… sin(x)), of which Relu is taken.
    """
    package = folder / f"relu-{steps}"
    if package.is_dir():
        return package
    names = ["x", *(f"x{number}" for number in range(1, steps + 1)), "y"]
    nodes = [
        helper.make_node("Relu" if out == "y" else "Sin", [taken], [out], name=f"to_{out}")
        for taken, out in pairwise(names)
    ]
    with package_aside(package) as place:
        (place / "models").mkdir()
        _save(place / "models/cpu.onnx", nodes, ["n"], [])
        tensors = [(m.Tensor(name, "float32", ("n",)),) for name in "xy"]
        entry = artefact(place, "models/cpu.onnx", m.CPU_MODEL)
        source = m.Source("relu.onnx", 1, hashlib.sha256(b"").hexdigest())
        made = m.Toolchain("", "", "", "")
        contract = m.Contract(*tensors)
        write_manifest(place, Manifest(source, "fp32", contract, (), (), (entry,), (), made, ()))
    return package
