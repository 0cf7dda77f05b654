"""``onnxruntime.quantization.execution_providers.qnn`` with its known faults mended."""

from __future__ import annotations

import functools
import importlib
import tempfile
from pathlib import Path
from typing import Any

from hexport.onnxruntime.quantization.readying import mended

_real = importlib.import_module("onnxruntime.quantization.execution_providers.qnn")
_preprocess = importlib.import_module("onnxruntime.quantization.execution_providers.qnn.preprocess")

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]

_FLOATS = (1, 10)
"""ONNX's numbers of float and float16: what is quantised."""


@functools.wraps(_real.get_qnn_qdq_config)
def _configured(model_input: Path, *rest: Any, **named: Any) -> Any:
    """The real one's choice, without Softmax of doubles: the quantiser dies of giving it a range."""
    config = _real.get_qnn_qdq_config(model_input, *rest, **named)
    config.nodes_to_exclude = [*(config.nodes_to_exclude or ()), *_softmax_of_doubles(model_input)]
    return config


get_qnn_qdq_config = mended(_configured)


def _softmax_of_doubles(file: Path) -> list[str]:
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load_model(file)).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    floats = {value.name for value in values if value.type.tensor_type.elem_type in _FLOATS}
    return [n.name for n in graph.node if n.op_type == "Softmax" and n.name and n.output[0] not in floats]


@functools.wraps(_real.qnn_preprocess_model)
def qnn_preprocess_model(model_input: Any, model_output: str | Path, *rest: Any, **named: Any) -> bool:
    """As the real one, but a model with metadata passes, and what was optimised is always written.

    The real one dies of ``metadata_props``, and throws its clean-up away when no fusion applied, and with it
    the weights that it made of Constant nodes.
    """
    import onnx

    model = model_input if isinstance(model_input, onnx.ModelProto) else onnx.load_model(model_input)
    if not _real.qnn_preprocess_model(_without_metadata(model), model_output, *rest, **named):
        cleaned = _preprocess.save_and_reload_optimize_model(_without_metadata(model), shape_infer=True)
        onnx.save_model(cleaned, model_output)
    _give_back_metadata(model, Path(model_output))
    return True


def _without_metadata(model: Any) -> Any:
    """A copy: the real function also moves the weights of what it is given into a file that it deletes."""
    copy = type(model)()
    copy.CopyFrom(model)
    del copy.metadata_props[:]
    return copy


def _give_back_metadata(model: Any, output: Path) -> None:
    import onnx

    written = onnx.load_model(output, load_external_data=False)
    said = {entry.key: entry.value for entry in (*written.metadata_props, *model.metadata_props)}
    onnx.helper.set_model_props(written, said)
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=f".{output.name}.", delete=False) as file:
        file.write(written.SerializeToString())
    Path(file.name).replace(output)


def __getattr__(name: str) -> Any:
    return getattr(_real, name)
