"""``convert``: the same code for the NPU in a ``.pte`` and in an ONNX model."""
