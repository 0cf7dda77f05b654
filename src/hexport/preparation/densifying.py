"""Sparse initializers written out: neither onnx-ir nor the NPU knows them, and ONNX Runtime does the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hexport.model.soundness import UnusableGraph

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray


def densify(path: Path) -> int:
    """Change the file in place; gives how many there were."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    count = 0
    for graph in _graphs(model.graph):
        for sparse in graph.sparse_initializer:
            try:
                dense = _dense(sparse, path.parent)
            except (ValueError, IndexError, MemoryError) as error:
                raise UnusableGraph(
                    f"the sparse constant {sparse.values.name!r} cannot be written out",
                    why=str(error),
                    next="export the model with dense constants",
                ) from error
            graph.initializer.append(onnx.numpy_helper.from_array(dense, sparse.values.name))
            count += 1
        del graph.sparse_initializer[:]
    if count:
        path.write_bytes(model.SerializeToString())
    return count


def _dense(sparse: onnx.SparseTensorProto, folder: Path) -> NDArray[np.generic]:
    import numpy as np
    from onnx import numpy_helper

    values = numpy_helper.to_array(sparse.values, str(folder))
    indices = numpy_helper.to_array(sparse.indices, str(folder))
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _graphs(body)
