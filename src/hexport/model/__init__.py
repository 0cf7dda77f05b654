"""The user's model: reading ONNX files, their dims, and what the graph computes. Knows no QNN."""

from hexport.model.file import ExternalDataMissing, ModelError, NotOnnx, TooLarge, UnreadableModel
from hexport.model.graph import Graph, Node, TensorType
from hexport.model.reading import Model, read

__all__ = [
    "ExternalDataMissing",
    "Graph",
    "Model",
    "ModelError",
    "Node",
    "NotOnnx",
    "TensorType",
    "TooLarge",
    "UnreadableModel",
    "read",
]
