"""What can go wrong between a module and its ONNX file."""

from __future__ import annotations

from hexport.errors import HexportError


class TorchError(HexportError):
    """The model cannot be taken from PyTorch."""

    code = "HX420"


class FactoryFailed(TorchError):
    """What MODULE:FACTORY names raised an error, or gave something that is no model with example inputs."""

    code = "HX421"


class ProgramRefused(TorchError, ValueError):
    """A file is damaged, of another version, or holds what would run code when it is loaded."""

    code = "HX422"


class DataDependent(TorchError):
    """What the module computes next depends on the values it has computed, which one graph cannot say."""

    code = "HX423"


class NotCaptured(TorchError):
    """torch.export could not make one graph of the module."""

    code = "HX424"


class NoOnnxForm(TorchError):
    """An operator of the module has no form in ONNX."""

    code = "HX425"


class HasState(TorchError):
    """The module changes a buffer of its own when it runs; an ONNX graph forgets."""

    code = "HX426"


class ExportDiffers(TorchError):
    """The exported graph does not answer as the module does."""

    code = "HX427"


class EagerFailed(TorchError):
    """The module itself fails on the inputs it was given."""

    code = "HX428"


class BadDynamicShapes(TorchError, ValueError):
    """The dynamic shapes name no input or axis, or contradict what the module computes."""

    code = "HX429"
