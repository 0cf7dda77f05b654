"""A model as ONNX Runtime's quantiser needs it, and the quantiser's functions given that.

The real ones take weights that are Constant nodes for activations, and leave out, or stop at, tensors that
ONNX's own type inference does not know, such as the results of com.microsoft's operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hexport.backend.sessions import import_onnxruntime
from hexport.errors import HexportError
from hexport.storage.temporary import temporary_folder

_FLOATS = {"tensor(float)": "FLOAT", "tensor(float16)": "FLOAT16"}
"""What is quantised at all."""


class QuantizerFault(HexportError, RuntimeError):
    """ONNX Runtime's quantiser stopped at something in the model."""

    code = "HX955"


def mended(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose first argument is a model, given a copy that it can work with."""

    @functools.wraps(function)
    def call(model_input: Any, *arguments: Any, **named: Any) -> Any:
        with temporary_folder() as folder:
            model = readied(model_input, folder)
            try:
                return function(model, *arguments, **named)
            except (KeyError, AttributeError, IndexError) as error:
                raise QuantizerFault(
                    f"ONNX Runtime's {function.__name__} cannot quantise this model",
                    why=f"{type(error).__name__}: {error}",
                    next="`hexport quantize` does not need it",
                ) from error

    return call


def readied(model_input: Any, folder: Path) -> Path:
    """The model's copy in ``folder``: constants are initializers, and every float tensor has a type."""
    import onnx

    model = model_input if isinstance(model_input, onnx.ModelProto) else onnx.load_model(model_input)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    lift_constants(copy)
    add_types(copy, folder)
    file = folder / "readied.onnx"
    onnx.save_model(copy, file, save_as_external_data=_large(copy))
    return file


def lift_constants(model: Any) -> None:
    """Constant nodes of tensors become initializers of the same names."""
    from onnx import helper

    graph, kept = model.graph, []
    taken = {output.name for output in graph.output}
    for node in graph.node:
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type != "Constant" or "value" not in values or node.output[0] in taken:
            kept.append(node)
            continue
        tensor = graph.initializer.add()
        tensor.CopyFrom(values["value"])
        tensor.name = node.output[0]
    del graph.node[:]
    graph.node.extend(kept)


def add_types(model: Any, folder: Path) -> None:
    """What ONNX Runtime infers of float tensors that the model says nothing of."""
    import onnx

    ort = import_onnxruntime()
    known = {v.name for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    for name in (name for node in model.graph.node for name in node.output):
        if name and name not in known:
            exposed.graph.output.add(name=name)
    file = folder / "exposed.onnx"
    onnx.save_model(exposed, file, save_as_external_data=_large(model))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    for value in session.get_outputs():
        if value.name not in known and value.type in _FLOATS:
            kind = getattr(onnx.TensorProto, _FLOATS[value.type])
            # No shape: an unknown one looks like a lone number's here, and the quantiser asks for types only.
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(value.name, kind, None))


def _large(model: Any) -> bool:
    return bool(model.ByteSize() >= 2**30)
