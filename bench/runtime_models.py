"""Small packages for ``runtime.py``: so small that what is measured is not the model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import hexport
from hexport.packaging import Manifest, artefact, package_aside, write_manifest
from hexport.packaging import manifest as m

TARGET = "SM8650"
SHAPE = (1, 16, 8, 8)


def convolution(path: Path) -> Path:
    weight = np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32) / 12
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    _save(
        path,
        nodes,
        list(SHAPE),
        [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.ravel())],
    )
    return path


def _save(path: Path, nodes: list[Any], shape: list[Any], weights: list[Any]) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def built(model: Path, folder: Path) -> Path:
    hexport.build(model, output=folder / "package", targets=[TARGET], scheme="fp16")
    return folder / "package"


def cpu_package(folder: Path) -> Path:
    """y = Relu(x) of any length, for the CPU alone: what is measured is the way there and back."""
    with package_aside(folder / "relu") as place:
        (place / "models").mkdir()
        _save(place / "models/cpu.onnx", [helper.make_node("Relu", ["x"], ["y"], name="relu")], ["n"], [])
        tensors = [(m.Tensor(name, "float32", ("n",)),) for name in "xy"]
        entry = artefact(place, "models/cpu.onnx", m.CPU_MODEL)
        source = m.Source("relu.onnx", 1, hashlib.sha256(b"").hexdigest())
        made = m.Toolchain("", "", "", "")
        contract = m.Contract(*tensors)
        write_manifest(place, Manifest(source, "fp32", contract, (), (), (entry,), (), made, ()))
    return folder / "relu"
