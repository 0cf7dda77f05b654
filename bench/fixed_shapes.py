"""A copy of a model with fixed input shapes, made with the tool that onnxruntime's documentation names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnxruntime.tools.onnx_model_utils import fix_output_shapes, make_input_shape_fixed

Shapes = Mapping[str, tuple[int, ...]]


def fix_shapes(model: Path, shapes: Shapes, copy: Path) -> str:
    """Write ``copy``. Returns what the tool complained of, if it did and the dims were written without it."""
    proto, complaint = onnx.load(model), ""
    try:
        for name, shape in shapes.items():
            make_input_shape_fixed(proto.graph, name, list(shape))
        fix_output_shapes(proto)
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        # A user would now open an editor: plain onnxruntime gets the same model as hexport all the same.
        proto, complaint = onnx.load(model), str(error).strip().splitlines()[0]
        _write_dims(proto, shapes)
    onnx.save(proto, copy)
    return complaint


def _write_dims(proto: onnx.ModelProto, shapes: Shapes) -> None:
    for value in proto.graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for size in shapes[value.name]:
                dims.add(dim_value=size)
