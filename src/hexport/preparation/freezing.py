"""Inputs that always have one value become constants: ``--freeze sr=16000`` takes an If away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.errors import UsageError
from hexport.model.graph import Graph

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from numpy.typing import NDArray


def parse_frozen(
    graph: Graph, values: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.generic]]:
    """``{"sr": "16000"}`` as arrays of the inputs' own type; a value is numbers, or ``@file.npy``."""
    import numpy as np

    frozen: dict[str, NDArray[np.generic]] = {}
    for name, text in values.items():
        if name not in graph.inputs:
            raise UsageError(
                f"--freeze {name}: the model has no such input", why=f"it has: {', '.join(graph.inputs)}"
            )
        dtype = graph.inputs[name].dtype
        try:
            if text.startswith("@"):
                array = np.load(Path(text[1:]), allow_pickle=False)
            else:
                parts = [part.strip() for part in text.split(",")]
                array = np.array([float(part) if "float" in dtype else int(part) for part in parts])
            value = array.astype(dtype)
            wanted = shapes.get(name, value.shape)
            frozen[name] = np.broadcast_to(value.reshape(()) if value.size == 1 else value, wanted).copy()
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"--freeze {name}={text}: not a value for {graph.inputs[name]}",
                why=str(error),
                next=f"write --freeze {name}=NUMBER, --freeze {name}=1,2,3 or --freeze {name}=@file.npy",
            ) from error
    return frozen


def freeze(model: ir.Model, values: Mapping[str, NDArray[np.generic]]) -> None:
    """Make these inputs initializers of the main graph."""
    import onnx_ir as ir

    graph = model.graph
    for value in [value for value in graph.inputs if value.name in values]:
        assert value.name is not None
        graph.inputs.remove(value)
        value.const_value = ir.tensor(values[value.name], name=value.name)
        graph.register_initializer(value)
