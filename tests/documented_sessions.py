"""Sessions of the documented API, as a program makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import hexport.onnxruntime as onnxruntime
import small_models as small

CHIP = {"backend_path": "QnnHtp.dll", "soc_model": "SM8650"}
ONES = {"x": np.ones((1, 3, 16, 16), np.float32)}


def session(
    model: Path | bytes, provider: dict[str, str] | None = None, **entries: Any
) -> onnxruntime.InferenceSession:
    """``entries``: of the session, with ``__`` for the dot."""
    options = onnxruntime.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return onnxruntime.InferenceSession(model, options, [("QNNExecutionProvider", provider or CHIP)])


def partly_on_cpu() -> onnx.ModelProto:
    """A Unique, which no NPU has, beside a convolution."""
    proto = small.conv_relu()
    proto.graph.node.append(helper.make_node("Unique", ["x"], ["u"], name="unique"))
    proto.graph.output.append(small.value("u", [None]))
    return proto
