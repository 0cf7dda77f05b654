"""A model in a newer opset, by ONNX's own converter."""

from __future__ import annotations

import onnx_ir as ir

_ONNX = ("", "ai.onnx")


def to_opset(model: ir.Model, version: int) -> ir.Model:
    """The model in opset ``version``, or itself if it is there already; raises what the converter raises."""
    import onnx.version_converter

    if model.opset_imports.get("", version) >= version:
        return model
    proto = ir.to_proto(model)
    # The converter goes by names alone, and onnxruntime has operators named like ONNX's newer ones.
    originals: dict[str, str] = {}
    for node in proto.graph.node:
        if node.domain not in _ONNX:
            apart = f"{node.op_type}_of_another_domain"
            originals[apart], node.op_type = node.op_type, apart
    newer = onnx.version_converter.convert_version(proto, version)
    for node in newer.graph.node:
        node.op_type = originals.get(node.op_type, node.op_type)
    converted: ir.Model = ir.from_proto(newer)
    return converted
