"""PyTorch in: a module and example inputs become an ONNX file that was compared with the module itself.

torch is imported when a model is opened, never by importing this room.
"""

from hexport.torch.description import TorchModel

__all__ = ["TorchModel"]
